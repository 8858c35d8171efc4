// See host_layout.h.
#include "planner/program/host_layout.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "planner/program/arena_layout.h"
#include "planner/program/memory_model.h"

namespace lynx {
namespace {

Bytes LivePeak(const Program& program, const std::vector<BufferInstance>& buffers) {
  std::vector<Bytes> change(program.size() + 1);
  for (const BufferInstance& buffer : buffers) {
    change[static_cast<size_t>(buffer.first)] += buffer.bytes;
    change[static_cast<size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  Bytes live, peak;
  for (const Bytes by : change) {
    live += by;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace

// The host pool is treated like an arena. A buffer lives in it from the start of its offload to the end of its reload.
HostLayout LayOutHost(const Program& program, const StageContext& context) {
  MemoryPlan pool;
  std::vector<std::vector<int32_t>> instances(program.size());  // filled only for the starts of copies
  absl::flat_hash_map<BufferKey, int32_t> current;
  for (size_t i = 0; i < program.size(); ++i) {
    const Action& action = program[i];
    const ActionInfo& info = InfoOf(action.kind);
    if (info.group != Group::kHost) continue;
    const bool offloads = info.flow == Flow::kOut && info.phase == Phase::kStart;
    for (const Access& access : AccessesOf(action, context)) {
      if (offloads || !current.contains(access.key)) {
        current[access.key] = static_cast<int32_t>(pool.buffers.size());
        pool.buffers.push_back({access.key, static_cast<int32_t>(i), static_cast<int32_t>(i), Padded(access.bytes), Bytes(0)});
      }
      const int32_t instance = current.at(access.key);
      pool.buffers[static_cast<size_t>(instance)].last = static_cast<int32_t>(i);
      if (info.phase == Phase::kStart) instances[i].push_back(instance);
    }
  }
  pool.live_peak = LivePeak(program, pool.buffers);
  LayOut(program, Bytes(0), pool);
  HostLayout layout{.offsets = std::vector<std::vector<Bytes>>(program.size()), .pool = pool.arena};
  for (size_t i = 0; i < program.size(); ++i) {
    for (const int32_t instance : instances[i]) {
      layout.offsets[i].push_back(pool.buffers[static_cast<size_t>(instance)].offset);
    }
  }
  return layout;
}

}  // namespace lynx

// TraceAssembly: joins the traces of one generation's steps, which ranks report in parts. Not thread-safe; owned by the
// controller. Bounded: it keeps at most kPending unfinished steps.
#ifndef LYNX_SERVER_HEALTH_TRACE_ASSEMBLY_H_
#define LYNX_SERVER_HEALTH_TRACE_ASSEMBLY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "server/values/job.h"
#include "server/values/node_state.h"

namespace lynx::server {

class TraceAssembly {
 public:
  TraceAssembly() = default;
  explicit TraceAssembly(size_t stages) : stages_(stages) {}

  // Adds a part of the trace of one step. `stage`: the pipeline rank whose trace it is; of all its ranks, only one reports
  // traces. When this part completes the traces of all pipeline ranks, returns them in the order of pipeline ranks. If a part
  // is missing, for example after a restart of the server, the step has no trace.
  std::optional<std::vector<std::vector<int64_t>>> Add(size_t stage, const TraceReport& part);

 private:
  static constexpr size_t kPending = 4;

  size_t stages_ = 0;
  std::map<int64_t, std::map<size_t, TraceReport>> steps_;  // for each step and stage, all parts so far, joined
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_TRACE_ASSEMBLY_H_

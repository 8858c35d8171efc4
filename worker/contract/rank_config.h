// RankConfig: all that a rank process is told. The worker daemon writes it as a file; the rank process has no other
// input but its data and checkpoints. Plain data.
#ifndef LYNX_WORKER_CONTRACT_RANK_CONFIG_H_
#define LYNX_WORKER_CONTRACT_RANK_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/units.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "worker/contract/peer_address.h"

namespace lynx {

// The device of a rank.
struct RankDevice {
  DeviceKind kind = DeviceKind::kCpu;  // never kAny
  int32_t index = 0;                   // on the node, as its agent numbers them: for people
  // Of a GPU, "GPU-...": what names it to CUDA. Unlike an index it names the same one whatever the order, whatever has
  // fallen off the bus since the agent looked, and when a process is shown that one alone.
  std::string uuid;

  bool operator==(const RankDevice&) const = default;
};

struct RankConfig {
  JobId job;
  Generation generation;
  int32_t rank = 0;
  JobSpec spec;
  StageContext context;  // of this rank's stage; context.layout gives the world
  Program program;       // of this rank's stage
  Bytes arena;           // planned; the rank refuses to start if PlanMemory gives another figure
  std::string plan_digest;
  std::vector<PeerAddress> peers;    // by rank
  std::string connection_secret;     // of the generation (common/connection_secret.h); the text is for the rank's user alone
  std::string checkpoint_directory;  // absolute; shared by all ranks
  // Step of the newest checkpoint that the server knows of; -1: none. The rank looks for itself and resumes from the
  // newest whole one that there is (see rank/resume.h); where there is one or should be, it never starts afresh.
  int64_t resume_step = -1;
  // Where this node keeps copies of states in memory, absolute: one for each worker daemon, so it tells nodes of one host
  // apart. Empty: it keeps none. `copies_limit`: of all jobs' copies together; 0: what the memory has room for.
  std::string copies_directory;
  Bytes copies_limit;
  bool check = false;  // of devices and links, before all else (rank/node_check.h); the same on all ranks
  Nanos last_checkpoint_patience{1'800'000'000'000};  // how long the last step's checkpoint is tried again
  RankDevice device;
  int32_t threads = 1;         // of the compute library
  std::vector<int32_t> cores;  // pin to these; empty = do not pin
  int64_t pacing_bytes_per_second = 0;

  bool operator==(const RankConfig&) const = default;
};

// JSON, with the program as action text.
std::string RankConfigText(const RankConfig& config);
absl::StatusOr<RankConfig> ParseRankConfig(const std::string& text);

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_CONFIG_H_

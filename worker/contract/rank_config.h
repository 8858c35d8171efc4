// RankConfig: everything that a rank process is told. The worker daemon writes it to a file; the rank process has no other
// input except its data and checkpoints. Plain data.
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
  int32_t index = 0;                   // the device's number on the node, as its agent counts; only for people
  // The UUID of a GPU, "GPU-...", by which CUDA finds it. Unlike an index, it names the same GPU in any order, also when a GPU
  // has failed since the agent looked, and when a process can see only this GPU.
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
  Bytes arena;           // planned; the rank refuses to start if PlanMemory computes another size
  std::string plan_digest;
  std::vector<PeerAddress> peers;    // by rank
  std::string connection_secret;     // of the generation (common/connection_secret.h); only the rank's user may read the text
  std::string checkpoint_directory;  // absolute; shared by all ranks
  // Step of the newest checkpoint that the server knows of; -1: it knows of none. The rank itself looks for the newest whole
  // checkpoint and resumes from it (see worker/rank/states/resume.h). If there is a checkpoint, or should be one, it never
  // starts from the beginning.
  int64_t resume_step = -1;
  // Where this node keeps in-memory checkpoints; an absolute path. Each worker daemon has its own, so it also distinguishes the
  // nodes on one host. Empty: the node keeps none. `copies_limit`: the limit for the in-memory checkpoints of all jobs
  // together; 0: as much as fits into the memory.
  std::string copies_directory;
  Bytes copies_limit;
  bool check = false;  // check devices and links before everything else (worker/rank/check/node_check.h); the same on all ranks
  Nanos last_checkpoint_patience{1'800'000'000'000};  // how long to retry the checkpoint of the last step
  RankDevice device;
  int32_t threads = 1;         // threads of the compute library
  std::vector<int32_t> cores;  // pin to these; empty = do not pin
  int64_t pacing_bytes_per_second = 0;

  bool operator==(const RankConfig&) const = default;
};

// JSON, with the program as action text.
std::string RankConfigText(const RankConfig& config);
absl::StatusOr<RankConfig> ParseRankConfig(const std::string& text);

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_CONFIG_H_

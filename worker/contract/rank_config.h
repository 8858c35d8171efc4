// RankConfig is everything that the worker daemon tells a rank process. The daemon writes it to a file. The rank process has no
// other input except its data and its checkpoints. Plain data.
#ifndef LYNX_WORKER_CONTRACT_RANK_CONFIG_H_
#define LYNX_WORKER_CONTRACT_RANK_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/connection_secret.h"
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
  int32_t index = 0;                   // the device's number on the node, as the agent counts; only for messages to people
  // The UUID of a GPU, "GPU-...". CUDA finds the GPU by it. An index may name another GPU if the order changes, if a GPU has
  // failed since the agent looked, or if a process can see only this GPU. The UUID always names the same GPU.
  std::string uuid;

  bool operator==(const RankDevice&) const = default;
};

struct RankConfig {
  JobId job;
  Generation generation;
  int32_t rank = 0;
  JobSpec spec;
  StageContext context;  // the context of this rank's stage; context.layout is the layout of all ranks
  Program program;       // the program of this rank's stage
  Bytes arena;           // the planned size; the rank refuses to start if PlanMemory computes another size
  std::string plan_digest;
  std::vector<PeerAddress> peers;  // one for each rank
  // The secret of the generation (common/connection_secret.h). Only the rank's user may read the text.
  std::string connection_secret;
  std::string checkpoint_directory;  // an absolute path, which all ranks share
  // The step of the newest checkpoint that the server knows; -1: the server knows no checkpoint. The rank itself looks for the
  // newest whole checkpoint and resumes from it (see worker/rank/states/resume.h). If there is a checkpoint, or if there should
  // be one, the rank never starts from the beginning.
  int64_t resume_step = -1;
  // `copies_directory`: the directory in which this node keeps in-memory checkpoints; an absolute path. Empty: the node keeps
  // none. Each worker daemon has its own directory, so the path also distinguishes the nodes on one host. `copies_limit`: the
  // limit for the in-memory checkpoints of all jobs together; 0: as much as the memory can hold.
  std::string copies_directory;
  Bytes copies_limit;
  // True if the rank must check devices and links before everything else (worker/rank/check/node_check.h). All ranks have the
  // same value.
  bool check = false;
  RankEncryption encryption = RankEncryption::kOff;   // all ranks have the same value
  Nanos last_checkpoint_patience{1'800'000'000'000};  // how long the rank retries to write the checkpoint of the last step
  // A rank that lives, but makes no progress for this time, hangs: see CommunicatorOptions. It counts before the third step and
  // while a checkpoint is written or loaded.
  Nanos progress_limit{120'000'000'000};
  RankDevice device;
  int32_t threads = 1;         // number of threads of the compute library
  std::vector<int32_t> cores;  // the cores to which the rank pins itself; empty = it does not
  int64_t pacing_bytes_per_second = 0;

  bool operator==(const RankConfig&) const = default;
};

// The text is JSON; it contains the program as action text.
std::string RankConfigText(const RankConfig& config);
absl::StatusOr<RankConfig> ParseRankConfig(const std::string& text);

}  // namespace lynx

#endif  // LYNX_WORKER_CONTRACT_RANK_CONFIG_H_

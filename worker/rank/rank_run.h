// RankRun runs one rank of one generation of a job. It reads the configuration, prepares data, peers, states and engine, and
// runs all steps with their checkpoints.
//
//   connect to peers -> check of nodes, if it is due (node_check.h) -> open data -> states, arena -> do all read the same data?
//     -> resume point -> RankReady -> steps, checkpoints -> RankDone, or RankYielded if the run is asked to give way
//
// Peers connect first, so that the time limit for connecting does not include the time of a slow disk. Runs on the calling
// thread.
#ifndef LYNX_WORKER_RANK_RANK_RUN_H_
#define LYNX_WORKER_RANK_RANK_RUN_H_

#include "worker/backend/backend.h"
#include "worker/contract/rank_config.h"
#include "worker/rank/peers/cancellation.h"
#include "worker/rank/records/report_file.h"

namespace lynx::worker {

// Returns the process's exit code (kRankExit...). It reports every failure before it returns; a cancelled run reports nothing.
// Takes ownership of `listen_fd`. The calling thread must be the backend's thread, and should already be pinned.
int RunRank(const RankConfig& config, int listen_fd, Backend& backend, ReportFile& reports, Cancellation& cancellation);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_RANK_RUN_H_

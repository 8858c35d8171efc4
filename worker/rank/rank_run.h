// RankRun: one rank of one generation of a job, from its configuration to its last step: data, peers, states, engine,
// steps and checkpoints.
//
//   meet peers -> check of nodes, where one is due (node_check.h) -> open data -> states, arena -> all read the same data?
//     -> resume point -> RankReady -> steps, checkpoints -> RankDone, or RankYielded where the run is asked to give way
//
// Peers meet first, so that the limit for connecting covers nobody's slow disk. Runs on the calling thread.
#ifndef LYNX_WORKER_RANK_RANK_RUN_H_
#define LYNX_WORKER_RANK_RANK_RUN_H_

#include "worker/backend/backend.h"
#include "worker/contract/rank_config.h"
#include "worker/rank/peers/cancellation.h"
#include "worker/rank/records/report_file.h"

namespace lynx {

// Returns the process's exit code (kRankExit...). Every failure has been reported when it returns, but a cancelled
// run reports nothing. `listen_fd` is taken over. The calling thread should be pinned already, and the backend its own.
int RunRank(const RankConfig& config, int listen_fd, Backend& backend, ReportFile& reports, Cancellation& cancellation);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_RANK_RUN_H_

// RankThreads runs the ranks of a small world as threads of this process, which are connected through loopback. Test support.
#ifndef LYNX_TESTS_WORKER_COLLECTIVES_RANK_THREADS_H_
#define LYNX_TESTS_WORKER_COLLECTIVES_RANK_THREADS_H_

#include <functional>
#include <memory>
#include <vector>

#include "worker/collectives/communicator.h"

namespace lynx::worker {

// Returns the options of every rank of `layout`, each with a listening socket of its own.
std::vector<CommunicatorOptions> LoopbackOptions(const ParallelLayout& layout);

using RankBody = std::function<void(int32_t rank, Communicator& communicator)>;

// Connects all ranks, each on a thread of its own, and runs `body` on each of them. Every rank must connect.
void RunRanks(const std::vector<CommunicatorOptions>& options, const RankBody& body);
void RunRanks(const ParallelLayout& layout, const RankBody& body);

// Runs `body` on one thread per rank without connecting anything.
void OnThreads(int32_t count, const std::function<void(int32_t)>& body);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_COLLECTIVES_RANK_THREADS_H_

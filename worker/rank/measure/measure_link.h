// Measures a link: the cost of transfers between two ranks, and how much transfers and compute slow each other down when they
// overlap. Each rank is a thread with its own TCP communicator, so the ranks communicate like two rank processes.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_LINK_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_LINK_H_

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/contract/measurement.h"

namespace lynx::worker {

// Where the two ranks run, if they do not both run where the caller runs. `hosts`: the addresses of the ranks, which replace
// request.host. `enter`: the thread of a rank calls this function to move to its place (a network namespace).
struct LinkPlaces {
  std::array<std::string, 2> hosts;
  std::function<absl::Status(int32_t rank)> enter;
};

absl::StatusOr<LinkResult> MeasureLink(const LinkRequest& request);
absl::StatusOr<LinkResult> MeasureLink(const LinkRequest& request, const LinkPlaces& places);

// A transfer of `steps` steps, one after another, in which a rank sends `bytes` in total. The cost model counts in the same
// way: an all-reduce of n bytes over p ranks takes 2 (p - 1) steps of n / p bytes each, and a message takes one step of n
// bytes.
struct TransferSample {
  int64_t steps = 1;
  Bytes bytes;
  Nanos time;
};

// Fits time = steps * latency + bytes / bytes_per_second by least squares of the relative errors. Needs at least two sizes. The
// results are limited to latency >= 0 and bytes_per_second >= 1. Pure.
LinkCost FitLink(const std::vector<TransferSample>& samples);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_LINK_H_

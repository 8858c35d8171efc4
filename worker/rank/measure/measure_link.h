// Measuring a link: the cost of transfers between two ranks, and what overlapping them with compute costs. Two
// threads, each a rank with a communicator of its own over TCP, as two rank processes would be.
#ifndef LYNX_WORKER_RANK_MEASURE_MEASURE_LINK_H_
#define LYNX_WORKER_RANK_MEASURE_MEASURE_LINK_H_

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/rank/measure/measure.h"

namespace lynx {

// Where the two ranks are, if they are not both where the caller is: their addresses, in place of request.host, and what
// a thread calls to get to one of them (into its network namespace).
struct LinkPlaces {
  std::array<std::string, 2> hosts;
  std::function<absl::Status(int32_t rank)> enter;
};

absl::StatusOr<LinkResult> MeasureLink(const LinkRequest& request);
absl::StatusOr<LinkResult> MeasureLink(const LinkRequest& request, const LinkPlaces& places);

// A transfer that takes so many steps, one after another, in all of which a rank sends so many bytes: as in the cost model,
// an all-reduce over p ranks of n bytes takes 2 (p - 1) steps of n / p, a message one of n.
struct TransferSample {
  int64_t steps = 1;
  Bytes bytes;
  Nanos time;
};

// Least squares of relative errors: time = steps * latency + bytes / bytes_per_second. At least two sizes; the results are
// clamped to latency >= 0 and bytes_per_second >= 1. Pure.
LinkCost FitLink(const std::vector<TransferSample>& samples);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_MEASURE_MEASURE_LINK_H_

// RankNetwork: a network between ranks on one machine that is as slow as a benchmark says. Where this process may make
// network namespaces, each rank has one of its own, joined to the others by a link whose sending side is shaped with
// tc (tbf, and netem where there is latency); elsewhere ranks share the machine's loopback, and their sockets are paced.
//
// Made and used by one thread at a time, except that InPlace may be called by any. Needs `ip` and `tc` of iproute2 for
// namespaces; what was made is removed by the destructor.
#ifndef LYNX_BENCH_OVERLAP_RANK_NETWORK_H_
#define LYNX_BENCH_OVERLAP_RANK_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/units.h"

namespace lynx::bench {

struct LinkShape {
  int64_t bytes_per_second = 0;  // of each rank's sending; 0: as fast as it goes
  Nanos latency;                 // added to each packet
};

class RankNetwork {
 public:
  // For ranks 0..ranks-1. `paced`: do not try namespaces.
  static absl::StatusOr<std::unique_ptr<RankNetwork>> Make(int32_t ranks, bool paced);
  ~RankNetwork();
  RankNetwork(const RankNetwork&) = delete;
  RankNetwork& operator=(const RankNetwork&) = delete;

  // Why sockets are paced; "" with namespaces.
  const std::string& why_paced() const { return why_paced_; }
  // From now on. Unimplemented: latency without namespaces.
  absl::Status Shape(const LinkShape& shape);
  // Where rank `rank` listens.
  std::string HostOf(int32_t rank) const;
  // RankConfig's; 0 with namespaces.
  int64_t pacing_bytes_per_second() const { return why_paced_.empty() ? 0 : shape_.bytes_per_second; }
  // Moves the calling thread, and what it starts from now on, to where rank `rank` is.
  absl::Status Enter(int32_t rank) const;
  // Runs `body` on a thread of its own that has entered.
  absl::Status InPlace(int32_t rank, const std::function<absl::Status()>& body) const;

 private:
  RankNetwork(int32_t ranks, std::string prefix) : ranks_(ranks), prefix_(std::move(prefix)) {}
  absl::Status MakeNamespaces();
  std::string NameOf(int32_t rank) const;

  const int32_t ranks_;
  const std::string prefix_;  // of the namespaces' names
  std::string why_paced_;
  LinkShape shape_;
};

}  // namespace lynx::bench

#endif  // LYNX_BENCH_OVERLAP_RANK_NETWORK_H_

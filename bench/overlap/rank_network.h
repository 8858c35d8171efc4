// RankNetwork: a network between ranks on one machine that is as slow as a benchmark wants. If this process may make
// network namespaces, each rank has its own namespace, connected to the others by a link whose sending side is shaped
// with tc (tbf, and netem if there is latency). Otherwise the ranks share the machine's loopback, and their sockets are
// paced.
//
// One thread at a time makes and uses it; only InPlace may be called by any thread. Namespaces need `ip` and `tc` of
// iproute2. The destructor removes everything that was made.
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
  int64_t bytes_per_second = 0;  // the rate at which each rank sends; 0: as fast as possible
  Nanos latency;                 // added to each packet
};

class RankNetwork {
 public:
  // Makes a network for ranks 0..ranks-1. `paced`: do not try namespaces.
  static absl::StatusOr<std::unique_ptr<RankNetwork>> Make(int32_t ranks, bool paced);
  ~RankNetwork();
  RankNetwork(const RankNetwork&) = delete;
  RankNetwork& operator=(const RankNetwork&) = delete;

  // Why sockets are paced; "" if there are namespaces.
  const std::string& why_paced() const { return why_paced_; }
  // Sets the shape from now on. Unimplemented: latency without namespaces.
  absl::Status Shape(const LinkShape& shape);
  // The address on which rank `rank` listens.
  std::string HostOf(int32_t rank) const;
  // The value for RankConfig::pacing_bytes_per_second; 0 with namespaces.
  int64_t pacing_bytes_per_second() const { return why_paced_.empty() ? 0 : shape_.bytes_per_second; }
  // Moves the calling thread, and everything that it starts from now on, into the network of rank `rank`.
  absl::Status Enter(int32_t rank) const;
  // Runs `body` on a new thread that has entered the rank's network.
  absl::Status InPlace(int32_t rank, const std::function<absl::Status()>& body) const;

 private:
  RankNetwork(int32_t ranks, std::string prefix) : ranks_(ranks), prefix_(std::move(prefix)) {}
  absl::Status MakeNamespaces();
  std::string NameOf(int32_t rank) const;

  const int32_t ranks_;
  const std::string prefix_;  // the names of all namespaces begin with it
  std::string why_paced_;
  LinkShape shape_;
};

}  // namespace lynx::bench

#endif  // LYNX_BENCH_OVERLAP_RANK_NETWORK_H_

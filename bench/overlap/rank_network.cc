#include "bench/overlap/rank_network.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/fd.h"
#include "common/status.h"
#include "node/command.h"
#include "node/wake.h"

namespace lynx::bench {
namespace {

constexpr Nanos kCommandLimit{10'000'000'000};
// Size of tc's token bucket (tbf). It must hold the largest packet that the kernel gives to the queue: 64 KiB and a header for
// each frame of the packet. tbf splits a packet that is larger than the bucket into frames, each with its own timer interrupt.
// On a virtual machine these interrupts take a third of a core. After a pause, a whole bucket passes without delay. So the
// bucket is not larger than needed, and messages should be larger than the bucket.
constexpr int64_t kBurstBytes = 70 << 10;
// Bytes that a shaped queue holds before it drops packets. TCP slows down long before that.
constexpr int64_t kQueueBytes = 8 << 20;

// Runs one command line, whose words contain no spaces.
absl::Status Command(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  std::vector<std::string> argv = words;
  argv.front() = absl::StrCat("/usr/sbin/", words.front());
  if (::access(argv.front().c_str(), X_OK) != 0) argv.front() = absl::StrCat("/sbin/", words.front());
  WakeEvent never;
  return Annotate(RunCommands({argv}, kCommandLimit, never).front().status, line);
}

absl::Status Commands(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) LYNX_RETURN_IF_ERROR(Command(line));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankNetwork>> RankNetwork::Make(int32_t ranks, bool paced) {
  std::unique_ptr<RankNetwork> network(new RankNetwork(ranks, absl::StrCat("lynx-overlap-", ::getpid())));
  if (paced) {
    network->why_paced_ = "as asked for";
  } else if (const absl::Status made = network->MakeNamespaces(); !made.ok()) {
    network->why_paced_ = std::string(made.message());
  }
  return network;
}

RankNetwork::~RankNetwork() {
  for (int32_t rank = -1; rank < ranks_; ++rank) {
    if (::access(absl::StrCat("/run/netns/", NameOf(rank)).c_str(), F_OK) != 0) continue;
    Command(absl::StrCat("ip netns del ", NameOf(rank))).IgnoreError();
  }
}

// Rank -1 stands for the hub, in which a bridge connects all ranks.
std::string RankNetwork::NameOf(int32_t rank) const {
  return rank < 0 ? absl::StrCat(prefix_, "-hub") : absl::StrCat(prefix_, "-", rank);
}

absl::Status RankNetwork::MakeNamespaces() {
  const std::string hub = NameOf(-1);
  LYNX_RETURN_IF_ERROR(Commands({absl::StrCat("ip netns add ", hub), absl::StrCat("ip -n ", hub, " link add joint type bridge"),
                                 absl::StrCat("ip -n ", hub, " link set joint up")}));
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const std::string name = NameOf(rank);
    const std::string end = absl::StrCat("rank", rank);
    LYNX_RETURN_IF_ERROR(Commands({
        absl::StrCat("ip netns add ", name),
        absl::StrCat("ip -n ", name, " link set lo up"),
        absl::StrCat("ip -n ", name, " link add link0 type veth peer name ", end, " netns ", hub),
        absl::StrCat("ip -n ", name, " addr add ", HostOf(rank), "/24 dev link0"),
        absl::StrCat("ip -n ", name, " link set link0 up"),
        absl::StrCat("ip -n ", hub, " link set ", end, " master joint up"),
    }));
  }
  return absl::OkStatus();
}

absl::Status RankNetwork::Shape(const LinkShape& shape) {
  if (!why_paced_.empty() && shape.latency.value > 0) {
    return absl::UnimplementedError("added latency needs network namespaces");
  }
  shape_ = shape;
  if (!why_paced_.empty()) return absl::OkStatus();
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const std::string on = absl::StrCat("tc -n ", NameOf(rank), " qdisc ");
    Command(absl::StrCat(on, "del dev link0 root")).IgnoreError();  // there may be none yet
    std::string parent = "root handle 1:";
    if (shape.bytes_per_second > 0) {
      LYNX_RETURN_IF_ERROR(Command(absl::StrCat(on, "add dev link0 ", parent, " tbf rate ", shape.bytes_per_second * 8,
                                                "bit burst ", kBurstBytes, " limit ", kQueueBytes)));
      parent = "parent 1:1";
    }
    if (shape.latency.value > 0) {
      LYNX_RETURN_IF_ERROR(
          Command(absl::StrCat(on, "add dev link0 ", parent, " netem delay ", shape.latency.value / 1000, "us limit 100000")));
    }
  }
  return absl::OkStatus();
}

std::string RankNetwork::HostOf(int32_t rank) const {
  return why_paced_.empty() ? absl::StrCat("10.213.77.", rank + 1) : "127.0.0.1";
}

absl::Status RankNetwork::Enter(int32_t rank) const {
  if (!why_paced_.empty()) return absl::OkStatus();
  const std::string path = absl::StrCat("/run/netns/", NameOf(rank));
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::setns(fd.get(), CLONE_NEWNET) != 0) {
    return absl::InternalError(absl::StrCat("cannot enter ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status RankNetwork::InPlace(int32_t rank, const std::function<absl::Status()>& body) const {
  absl::Status status;
  std::thread([&] {
    status = Enter(rank);
    if (status.ok()) status = body();
  }).join();
  return status;
}

}  // namespace lynx::bench

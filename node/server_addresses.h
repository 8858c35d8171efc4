// ServerAddresses: the addresses of a cluster's servers, one of which leads, and which of them a client calls next. Pure. Not
// thread-safe; each client has a copy of its own.
//
// A client calls the present address until that one fails it: it does not answer, or it stands by (common/standby.h). Then
// comes the leader that a server has named, if it is among the addresses, else the next address of the text, and after the last
// the first. A round tries each address at most once. After a round without success the client waits before the next one.
#ifndef LYNX_NODE_SERVER_ADDRESSES_H_
#define LYNX_NODE_SERVER_ADDRESSES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lynx {

class ServerAddresses {
 public:
  static constexpr size_t kMaxServers = 16;

  // Parses "HOST:PORT" or several of them with commas, such as "a:7470,b:7470,[::1]:7470". Spaces around a part are ignored.
  // InvalidArgument names the part that is wrong: it is empty, it has no host or no port from 1 to 65535, or it is there twice;
  // or there are more than kMaxServers.
  static absl::StatusOr<ServerAddresses> Parse(const std::string& text);

  // All addresses, in the order of the text. There is at least one.
  const std::vector<std::string>& all() const { return all_; }
  bool several() const { return all_.size() > 1; }
  // The addresses as text that Parse takes.
  std::string text() const;
  bool Has(const std::string& address) const { return IndexOf(address).has_value(); }
  // True if all addresses of `others` are among these.
  bool HasAll(const ServerAddresses& others) const;

  // The address to call now.
  const std::string& present() const { return all_[present_]; }
  // True if another server has named the present address as the leader.
  bool named() const { return named_; }

  // Makes `address` the present one before the first call, if it is among these: it led when somebody last called it.
  void BeginWith(const std::string& address);

  // The present address has answered as the leader. So the next failure begins a new round.
  void Answered();

  enum class Next : uint8_t { kAtOnce, kAfterWait };
  // The present address has failed the client; this chooses another one, or the same if there is only one. `leader`: the leader
  // that the present address named as a standby; "": it named none. kAfterWait: the round is over.
  Next Failed(const std::string& leader = "");

 private:
  explicit ServerAddresses(std::vector<std::string> all) : all_(std::move(all)), tried_(all_.size(), false) {}
  std::optional<size_t> IndexOf(const std::string& address) const;

  std::vector<std::string> all_;
  std::vector<bool> tried_;  // which addresses have failed in this round
  size_t present_ = 0;
  bool named_ = false;
};

// Says that a server stands by, as the end of a sentence about its address. `leader`: the leader that it named; "": none.
std::string StandbyText(const ServerAddresses& servers, const std::string& leader);

}  // namespace lynx

#endif  // LYNX_NODE_SERVER_ADDRESSES_H_

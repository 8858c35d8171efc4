// LeaseKeeper: a node's lease in its daemon: takes the server's renewals, asks witnesses when none come, answers others, and
// tells the ranks through a file until when they may go on (node/lease.h says the rules). What a restarted daemon needs is in
// the data directory: `lease` (worker/contract/lease_file.h) and `lease.terms`.
//
// Not thread-safe: one owner thread.
#ifndef LYNX_WORKER_DAEMON_LEASE_KEEPER_H_
#define LYNX_WORKER_DAEMON_LEASE_KEEPER_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "lynx/v1/cluster.pb.h"
#include "node/lease.h"
#include "node/wake.h"
#include "worker/contract/lease_file.h"
#include "worker/daemon/witness.h"

namespace lynx {

class LeaseKeeper {
 public:
  // `lease_file` as the ranks are told; `address`: numeric, of this node; `peers`: how witnesses are spoken to.
  static absl::StatusOr<std::unique_ptr<LeaseKeeper>> Open(const std::string& lease_file, const std::string& address,
                                                           const PeerCredentials& peers, WakeEvent& wake);

  int witness_port() const { return server_->port(); }
  int64_t renewed() const { return lease_.renewed(); }
  void Sent(int64_t report) { lease_.Sent(report, BootTime()); }
  void Renewed(const v1::LeaseRenewal& renewal);
  // What is to be done now. Call it after Renewed, when the WakeEvent is raised, and at least every Lease::kAskEvery.
  void Step();

 private:
  LeaseKeeper(std::string terms_file, LeaseFile file, std::unique_ptr<WitnessServer> server, Lease lease, CredentialSource dial,
              WakeEvent& wake)
      : terms_file_(std::move(terms_file)), file_(std::move(file)), server_(std::move(server)), lease_(std::move(lease)),
        client_(std::move(dial), wake) {}

  void KeepTerms();

  const std::string terms_file_;
  LeaseFile file_;
  const std::unique_ptr<WitnessServer> server_;
  Lease lease_;
  WitnessClient client_;
  LeaseTerms kept_;  // in the file
  Nanos asked_at_;
  bool over_ = false;
};

}  // namespace lynx

#endif  // LYNX_WORKER_DAEMON_LEASE_KEEPER_H_

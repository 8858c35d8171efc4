// LeaseKeeper manages a node's lease in the worker daemon (node/lease.h has the rules). It takes the server's renewals, asks
// witnesses if no renewals come, and answers other daemons' questions. Through a file it tells the ranks until when they may
// run. The data directory keeps what a restarted daemon needs: `lease` (worker/contract/lease_file.h) and `lease.terms`.
//
// Not thread-safe: only one thread may call it.
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

namespace lynx::worker {

class LeaseKeeper {
 public:
  // `lease_file`: the path of the lease file that the ranks read. `address`: this node's numeric address. `peers`: credentials
  // for connections to and from witnesses.
  static absl::StatusOr<std::unique_ptr<LeaseKeeper>> Open(const std::string& lease_file, const std::string& address,
                                                           const PeerCredentials& peers, WakeEvent& wake);

  int witness_port() const { return server_->port(); }
  int64_t renewed() const { return lease_.renewed(); }
  void Sent(int64_t report) { lease_.Sent(report, BootTime()); }
  void Renewed(const v1::LeaseRenewal& renewal);
  // Asks witnesses if this is due now, and writes the present deadline to the file. Call it after Renewed, when the WakeEvent
  // is raised, and at least every Lease::kAskEvery.
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
  LeaseTerms kept_;  // the terms in the file
  Nanos asked_at_;
  bool over_ = false;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_LEASE_KEEPER_H_

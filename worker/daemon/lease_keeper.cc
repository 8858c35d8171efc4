#include "worker/daemon/lease_keeper.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status.h"
#include "node/file.h"
#include "node/log.h"

namespace lynx::worker {
namespace {

std::string AddressText(const v1::PeerAddress& address) {
  const bool ipv6 = address.host().find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", address.host(), ipv6 ? "]" : "", ":", address.port());
}

// Returns the terms in the file, or empty terms if they cannot be read. With empty terms the ranks end at their present
// deadline. With wrong terms they might run longer than they may.
LeaseTerms KeptTerms(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return {};
  absl::StatusOr<LeaseTerms> terms = ParseLeaseTerms(*text);
  if (terms.ok()) return *std::move(terms);
  LogWarn("{}: {}", path, std::string(terms.status().message()));
  return {};
}

}  // namespace

absl::StatusOr<std::unique_ptr<LeaseKeeper>> LeaseKeeper::Open(const std::string& lease_file, const std::string& address,
                                                               const PeerCredentials& peers, WakeEvent& wake) {
  const std::string terms_file = lease_file + ".terms";
  LYNX_ASSIGN_OR_RETURN(LeaseFile file, LeaseFile::OpenToWrite(lease_file));
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<WitnessServer> server, WitnessServer::Start(address, peers.listen));
  Lease lease(BootTime(), file.Deadline(), KeptTerms(terms_file));
  return std::unique_ptr<LeaseKeeper>(
      new LeaseKeeper(terms_file, std::move(file), std::move(server), std::move(lease), peers.dial, wake));
}

void LeaseKeeper::Renewed(const v1::LeaseRenewal& message) {
  Renewal renewal{.report = message.report(),
                  .server_up = Nanos(message.server_up_ns()),
                  .isolated = Nanos(message.isolated_ns()),
                  .cut_off = Nanos(message.cut_off_ns()),
                  .more_witnesses = message.more_witnesses()};
  for (const v1::PeerAddress& witness : message.witnesses()) renewal.witnesses.push_back(AddressText(witness));
  lease_.Renewed(renewal, BootTime());
}

void LeaseKeeper::Step() {
  const Nanos now = BootTime();
  for (const WitnessClient::Answer& answer : client_.Take()) lease_.Answered(answer.witness, answer.witnessed, now);
  if (lease_.AsksWitnesses(now) && now - asked_at_ >= Lease::kAskEvery) {
    asked_at_ = now;
    client_.Ask(lease_.terms().witnesses);
  }
  server_->Set(lease_.Own());
  KeepTerms();
  const Nanos deadline = lease_.Deadline(now);
  file_.Set(deadline);
  const bool over = deadline <= now;
  if (over && !over_) LogError("{}: its ranks end, since their work may be given to others", lease_.Reason());
  if (!over && over_) LogInfo("the server answers again: this node may train");
  over_ = over;
}

// Stores the terms if they have changed. If the file cannot be written, a restarted daemon knows no witnesses until the server
// answers. Until then the present deadline applies.
void LeaseKeeper::KeepTerms() {
  if (lease_.terms() == kept_) return;
  kept_ = lease_.terms();
  if (const absl::Status written = WriteFileDurably(terms_file_, LeaseTermsText(kept_)); !written.ok()) {
    LogWarn("{}", std::string(written.message()));
  }
}

}  // namespace lynx::worker

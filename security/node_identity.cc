// See node_identity.h.
#include "security/node_identity.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "lynx/v1/admin.grpc.pb.h"
#include "node/log.h"
#include "security/credentials.h"
#include "security/presented.h"
#include "security/secret.h"

namespace lynx {
namespace {

constexpr Nanos kLockLimit{60'000'000'000};
constexpr Nanos kCallLimit{10'000'000'000};
// Time limit for a connection to one of several addresses.
constexpr Nanos kTryLimit{2'000'000'000};
// Time limit for joining. It is long enough for a server that starts together with the node.
constexpr Nanos kJoinPatience{30'000'000'000};
constexpr std::chrono::milliseconds kBetweenAttempts{500};
// The clock is read at least this often, because it may be adjusted.
constexpr Nanos kMaxWait{60'000'000'000};
constexpr Nanos kShortestWait{100'000'000};
constexpr char kTokenVariable[] = "LYNX_JOIN_TOKEN";

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(kCallLimit.value));
}

// True if the same call may succeed later. ResourceExhausted means that many nodes join from one address, or that the server
// has too many events to handle.
bool MaySucceedLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

// Returns the join token, and removes it from the environment. Empty: no token is given.
absl::StatusOr<std::string> TakeJoinToken(const std::string& file) {
  std::string from_environment;
  if (const char* value = std::getenv(kTokenVariable)) from_environment = std::string(absl::StripAsciiWhitespace(value));
  ::unsetenv(kTokenVariable);
  if (file.empty()) return from_environment;
  absl::StatusOr<std::string> token = ReadSecretFile(file);
  if (token.ok()) return token;
  // Usually the node has used the token, and the token's file has been removed. Then no token is needed.
  if (absl::IsNotFound(token.status())) return std::string();
  return Annotate(token.status(), "--join-token-file");
}

}  // namespace

std::vector<Flag> IdentityFlags::All() {
  return {
      {"identity-dir", &directory,
       "directory of this node's certificate, shared by its agent and worker; empty: calls to the server are not encrypted"},
      {"join-token-file", &join_token_file,
       "file with a token of 'lynxctl admin join-token', or - for standard input; needed once; empty: $LYNX_JOIN_TOKEN"},
  };
}

absl::StatusOr<std::unique_ptr<NodeIdentity>> NodeIdentity::Open(const IdentityFlags& flags, const std::string& node,
                                                                 const ServerAddresses& servers, const Clock& clock) {
  if (flags.directory.empty()) {
    if (flags.join_token_file.empty()) return nullptr;
    return absl::InvalidArgumentError("--join-token-file needs --identity-dir, where the node's certificate is kept");
  }
  LYNX_ASSIGN_OR_RETURN(const std::string token, TakeJoinToken(flags.join_token_file));
  std::unique_ptr<NodeIdentity> identity(new NodeIdentity(IdentityDirectory(flags.directory), node, servers, clock));
  LYNX_RETURN_IF_ERROR(identity->GetCertificate(token));
  identity->thread_ = std::thread([self = identity.get()] { self->RenewForever(); });
  return identity;
}

NodeIdentity::~NodeIdentity() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<CertificateFacts> NodeIdentity::Check(const Identity& identity) const {
  LYNX_ASSIGN_OR_RETURN(CertificateFacts facts, ReadCertificate(identity.certificate));
  if (NodeOf(facts) == node_) return facts;
  return absl::FailedPreconditionError(absl::StrCat("the certificate in ", directory_.path(), " is of node ",
                                                    NodeOf(facts).value_or("(none)"), ", and this is node ", node_,
                                                    ": give each node an --identity-dir of its own"));
}

absl::Status NodeIdentity::GetCertificate(const std::string& join_token) {
  LYNX_ASSIGN_OR_RETURN(const UniqueFd lock, directory_.Lock(kLockLimit));
  const absl::StatusOr<Identity> kept = directory_.Read();
  std::string why = absl::StrCat("there is no certificate in ", directory_.path());
  if (kept.ok()) {
    LYNX_ASSIGN_OR_RETURN(const CertificateFacts facts, Check(*kept));
    if (facts.ends > clock_.Wall()) return absl::OkStatus();
    why = absl::StrCat("the certificate in ", directory_.path(), " has ended: the node was away for longer than that holds");
  } else if (!absl::IsNotFound(kept.status())) {
    return kept.status();
  }
  if (join_token.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(why, "; an admin makes a join token with 'lynxctl admin join-token --node ", node_,
                     "', and --join-token-file or ", kTokenVariable, " brings it here"));
  }
  LYNX_ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(join_token));
  const Nanos give_up = clock_.Monotonic() + kJoinPatience;
  while (true) {
    const absl::Status joined = AskLeader([&](const std::string& server) { return JoinAt(server, token); });
    if (!MaySucceedLater(joined) || clock_.Monotonic() > give_up) return Annotate(joined, "this node cannot join");
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

Nanos NodeIdentity::ConnectLimit() const { return servers_.several() && !servers_.named() ? kTryLimit : kCallLimit; }

NodeIdentity::Attempt NodeIdentity::AttemptOf(const std::string& server, const grpc::Status& status,
                                              const grpc::ClientContext& context) const {
  if (const std::optional<std::string> leader = LeaderOf(status, context); leader.has_value()) {
    return {.status = absl::UnavailableError(absl::StrCat("the server at ", server, " ", StandbyText(servers_, *leader))),
            .leader = *leader};
  }
  const absl::Status ended(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  return {.status = ended, .final = !absl::IsUnavailable(ended) && !absl::IsDeadlineExceeded(ended)};
}

absl::Status NodeIdentity::AskLeader(const std::function<Attempt(const std::string& server)>& ask) {
  std::vector<std::string> failures;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  while (true) {
    const Attempt attempt = ask(servers_.present());
    if (attempt.status.ok()) servers_.Answered();
    if (attempt.status.ok() || attempt.final) return attempt.status;
    failures.emplace_back(attempt.status.message());
    if (MaySucceedLater(attempt.status) || failures.size() == 1) code = attempt.status.code();
    if (servers_.Failed(attempt.leader) == ServerAddresses::Next::kAfterWait) break;
  }
  return absl::Status(code, absl::StrJoin(failures, "; "));
}

NodeIdentity::Attempt NodeIdentity::JoinAt(const std::string& server, const JoinToken& token) {
  const absl::StatusOr<std::string> authority = PresentedAuthority(server, token.authority_digest, ConnectLimit());
  if (!authority.ok()) return {.status = authority.status()};
  const absl::StatusOr<std::string> key = NewPrivateKey();
  if (!key.ok()) return {.status = key.status(), .final = true};
  absl::StatusOr<std::string> certificate_request = NewRequest(*key);
  if (!certificate_request.ok()) return {.status = certificate_request.status(), .final = true};
  v1::JoinRequest request;
  request.set_secret(token.secret);
  request.set_node(node_);
  request.set_request(*std::move(certificate_request));
  // From here on, the server must present a certificate that this authority signed, for the name in the server's address.
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      Dial(server, ConnectLimit(), stop_, [&] { return AuthorityChannelCredentials(*authority); });
  if (!channel.ok()) return {.status = channel.status()};
  grpc::ClientContext context;
  SetDeadline(context);
  context.AddMetadata("authorization",
                      "Join " + token.secret);  // the server reads no message of a caller whom it does not know
  v1::JoinResponse response;
  const grpc::Status answer = v1::Admin::NewStub(*channel)->Join(&context, request, &response);
  if (!answer.ok()) return AttemptOf(server, answer, context);
  const Identity identity{.authority = *authority, .certificate = response.certificate(), .private_key = *key};
  absl::Status kept = Check(identity).status();
  if (kept.ok()) kept = directory_.Replace(identity);
  if (kept.ok()) LogInfo("this node has joined as {}; its certificate is in {}", node_, directory_.path());
  return {.status = kept, .final = true};
}

NodeIdentity::Attempt NodeIdentity::RotateAt(const std::string& server, const v1::RotateCertificateRequest& request,
                                             v1::RotateCertificateResponse& response) {
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = Dial(server, ConnectLimit(), stop_, CredentialsOf(this));
  if (!channel.ok()) return {.status = channel.status()};
  grpc::ClientContext context;
  SetDeadline(context);
  return AttemptOf(server, v1::Admin::NewStub(*channel)->RotateCertificate(&context, request, &response), context);
}

absl::Status NodeIdentity::RenewIfDue() {
  LYNX_ASSIGN_OR_RETURN(const UniqueFd lock, directory_.Lock(kLockLimit));
  // The node's other daemon may have renewed the certificate already.
  LYNX_ASSIGN_OR_RETURN(const Identity old, directory_.Read());
  LYNX_ASSIGN_OR_RETURN(const CertificateFacts facts, Check(old));
  if (RotationTime(facts) > clock_.Wall()) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(const std::string key, NewPrivateKey());
  v1::RotateCertificateRequest request;
  LYNX_ASSIGN_OR_RETURN(*request.mutable_request(), NewRequest(key));
  v1::RotateCertificateResponse response;
  LYNX_RETURN_IF_ERROR(AskLeader([&](const std::string& server) { return RotateAt(server, request, response); }));
  // The chain after the certificate also has the authority's own certificate, which may have been renewed.
  const std::optional<std::string> successor = SuccessorOf(old.authority, response.certificate());
  const Identity renewed{
      .authority = successor.value_or(old.authority), .certificate = response.certificate(), .private_key = key};
  LYNX_RETURN_IF_ERROR(Check(renewed).status());
  LYNX_RETURN_IF_ERROR(directory_.Replace(renewed));
  LogInfo("the certificate of node {} has been renewed{}", node_,
          successor.has_value() ? ", and so has the certificate of the cluster's authority" : "");
  return absl::OkStatus();
}

void NodeIdentity::RenewForever() {
  std::string last_failure;
  while (!stop_) {
    Nanos wait = kShortestWait;
    const absl::StatusOr<Identity> kept = directory_.Read();
    const absl::StatusOr<CertificateFacts> facts = kept.ok() ? Check(*kept) : kept.status();
    const Nanos left = facts.ok() ? RotationTime(*facts) - clock_.Wall() : Nanos(0);
    if (left > Nanos(0)) {
      wait = std::clamp(left, kShortestWait, kMaxWait);
    } else {
      const absl::Status renewed = facts.ok() ? RenewIfDue() : facts.status();
      const std::string failure(renewed.message());
      if (!renewed.ok() && failure != last_failure) {
        LogWarn("the certificate of node {} cannot be renewed: {}; trying again", node_, failure);
      }
      last_failure = failure;
      // When the renewal begins, a third of the certificate's lifetime is left. If the lifetime is long, the next attempt can
      // wait. If it is short, the next attempt must come soon.
      if (!renewed.ok() && facts.ok())
        wait = std::clamp(Nanos((facts->ends - facts->begins).value / 60), kShortestWait, kMaxWait);
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(wait.value), [this] { return stop_.load(); });
  }
}

CredentialSource CredentialsOf(const NodeIdentity* identity) {
  if (identity == nullptr) return nullptr;
  return [directory = identity->directory()] { return NodeChannelCredentials(directory); };
}

PeerCredentials PeerCredentialsOf(const NodeIdentity* identity) {
  if (identity == nullptr) return {};
  return {.listen = ListenCredentials(identity->directory(), ClientCertificate::kRequired),
          .dial = [directory = identity->directory()] { return PeerChannelCredentials(directory); }};
}

}  // namespace lynx

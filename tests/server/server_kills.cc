#include "tests/server/server_kills.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "node/process.h"
#include "proto/convert.h"
#include "server/store/store.h"
#include "tests/server/store/stored_jobs.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;

constexpr int kBinding = 64;               // a client keeps its newest 64 jobs and cancels older ones
constexpr milliseconds kPatience{60'000};  // the longest wait for the first answer of a started server

int FreePort() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  LYNX_CHECK(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  LYNX_CHECK(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

std::unique_ptr<v1::Jobs::Stub> Dial(const std::string& address, int number) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt("client", number);  // different arguments, so that gRPC gives each client its own connection
  return v1::Jobs::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

// Everything that the clients know, for the check at the end.
class Ledger {
 public:
  void Submitted(const std::string& key, const std::string& id) {
    std::lock_guard lock(mutex_);
    const auto [found, is_new] = ids_.emplace(key, id);
    if (!is_new && found->second != id) violations_.push_back(absl::StrCat(key, " is job ", found->second, " and job ", id));
  }
  void Cancelled(const std::string& id) {
    std::lock_guard lock(mutex_);
    cancelled_.insert(id);
  }
  void Wrong(std::string what) {
    std::lock_guard lock(mutex_);
    violations_.push_back(std::move(what));
  }
  // Call these functions after all clients have ended.
  const std::map<std::string, std::string>& ids() const { return ids_; }
  const std::set<std::string>& cancelled() const { return cancelled_; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> ids_;  // job ids by idempotency key
  std::set<std::string> cancelled_;
  std::vector<std::string> violations_;
};

// A client that submits jobs, repeats some submissions and cancels jobs, until it is told to stop. If a kill leaves a call
// unanswered, the client repeats the call.
class Submitter {
 public:
  Submitter(int number, const std::string& address, milliseconds pace, Ledger& ledger, std::atomic<bool>& stop)
      : number_(number), stub_(Dial(address, number)), pace_(pace), ledger_(ledger), stop_(stop) {}

  void Run() {
    for (int n = 0; !stop_; ++n) {
      const std::string key = absl::StrCat("c", number_, "-", n);
      const std::string id = Submit(key, /*again=*/false);
      if (id.empty()) return;
      made_.emplace_back(key, id);
      if (n % 4 == 3) Submit(made_[static_cast<size_t>(n / 2)].first, /*again=*/true);
      if (n >= kBinding && !Cancel(made_[static_cast<size_t>(n - kBinding)].second)) return;
      std::this_thread::sleep_for(pace_);
    }
  }
  int64_t retried() const { return retried_; }
  int64_t already_there() const { return already_there_; }
  int64_t submitted() const { return static_cast<int64_t>(made_.size()); }

 private:
  // Repeats a call until it is answered, for at most 10 * kPatience. Returns false and records the reason if the server refused
  // the call or never answered.
  template <class Call>
  bool Insist(const std::string& what, const Call& call, int& tries) {
    const auto end = std::chrono::steady_clock::now() + 10 * kPatience;
    for (tries = 1;; ++tries) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + milliseconds(2'000));
      context.set_wait_for_ready(true);
      const grpc::Status status = call(context);
      if (status.ok()) return true;
      const bool lost =
          status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
      if (!lost || std::chrono::steady_clock::now() > end) {
        ledger_.Wrong(absl::StrCat(what, ": ", status.error_message()));
        return false;
      }
      ++retried_;
    }
  }

  // Returns the job's id, or "" if Insist failed.
  std::string Submit(const std::string& key, bool again) {
    v1::SubmitJobRequest request;
    *request.mutable_spec() = ToProto(MakeSpec(key));
    request.set_idempotency_key(key);
    v1::SubmitJobResponse response;
    int tries = 0;
    const auto call = [&](grpc::ClientContext& context) { return stub_->SubmitJob(&context, request, &response); };
    if (!Insist("submit " + key, call, tries)) return "";
    ledger_.Submitted(key, response.job().id());
    if (again && !response.existed()) ledger_.Wrong(key + " was made again");
    if (!again && tries == 1 && response.existed()) ledger_.Wrong(key + " was there before it was submitted");
    if (!again && response.existed()) ++already_there_;
    return response.job().id();
  }

  bool Cancel(const std::string& id) {
    v1::CancelJobRequest request;
    request.set_job_id(id);
    v1::CancelJobResponse response;
    int tries = 0;
    const auto call = [&](grpc::ClientContext& context) { return stub_->CancelJob(&context, request, &response); };
    if (!Insist("cancel " + id, call, tries)) return false;
    ledger_.Cancelled(id);
    return true;
  }

  const int number_;
  const std::unique_ptr<v1::Jobs::Stub> stub_;
  const milliseconds pace_;
  Ledger& ledger_;
  std::atomic<bool>& stop_;
  std::vector<std::pair<std::string, std::string>> made_;  // key, id
  int64_t retried_ = 0;
  int64_t already_there_ = 0;
};

class KilledServer {
 public:
  KilledServer(const KillsOptions& options, int port)
      : address_(absl::StrCat("127.0.0.1:", port)), directory_(options.directory), store_(options.store),
        probe_(Dial(address_, -1)) {}
  ~KilledServer() {
    if (child_.pidfd.valid()) Kill();
  }

  const std::string& address() const { return address_; }

  absl::Status Start() {
    absl::StatusOr<Child> child =
        SpawnInSession({absl::StrCat(LYNX_BINARY_DIR, "/bin/lynx-server"), "--listen=" + address_, "--data-dir=" + directory_,
                        "--store=" + store_, "--metrics-address=", "--keep-jobs=1000000", "--log-level=error"},
                       {.out = STDERR_FILENO, .error = STDERR_FILENO});
    if (!child.ok()) return child.status();
    child_ = *std::move(child);
    started_ = clock_.Monotonic();
    return absl::OkStatus();
  }
  // Waits for the server's first answer. Returns the time since the server's start, or Unavailable if the server has ended or
  // does not answer within kPatience.
  absl::StatusOr<Nanos> AwaitAnswer() {
    v1::ListJobsRequest request;
    request.set_limit(1);
    const auto deadline = std::chrono::system_clock::now() + kPatience;
    while (true) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(deadline);
      v1::ListJobsResponse response;
      const grpc::Status status = probe_->ListJobs(&context, request, &response);
      if (status.ok()) return clock_.Monotonic() - started_;
      // A failed call does not always mean that the new server failed. Perhaps the client notices only now that its connection
      // to the previous server is closed.
      if (HasEnded(child_.pidfd) || std::chrono::system_clock::now() > deadline) {
        return absl::UnavailableError("the server did not start: " + status.error_message());
      }
    }
  }
  void Kill() {
    SignalProcess(child_.pidfd, SIGKILL);
    pollfd end{.fd = child_.pidfd.get(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, -1);
    ReapChild(child_.pidfd);
    child_.pidfd.Reset();
  }

 private:
  const RealClock clock_;
  const std::string address_;
  const std::string directory_, store_;
  const std::unique_ptr<v1::Jobs::Stub> probe_;
  Child child_;
  Nanos started_;
};

absl::Status KillThem(const KillsOptions& options, KilledServer& server, KillsResult& result) {
  std::mt19937_64 random(options.seed);
  absl::Status status = server.Start();
  for (int kill = 0; kill < options.kills && status.ok(); ++kill) {
    if (random() % 5 == 0) {
      ++result.killed_starting;
      std::this_thread::sleep_for(milliseconds(random() % 100));
    } else {
      const absl::StatusOr<Nanos> recovery = server.AwaitAnswer();
      if (!recovery.ok()) return recovery.status();
      result.recoveries.push_back(*recovery);
      std::this_thread::sleep_for(milliseconds(random() % 1'000));
    }
    server.Kill();
    status = server.Start();
  }
  return status.ok() ? server.AwaitAnswer().status() : status;
}

// Checks the store. It must have every acknowledged job once, with its key, and every acknowledged cancellation. No event may
// be missing.
void CheckStore(const KillsOptions& options, const Ledger& ledger, std::vector<std::string>& violations) {
  absl::StatusOr<std::unique_ptr<Store>> store = OpenStore(options.store, options.directory);
  absl::StatusOr<std::vector<Store::StoredJob>> jobs = store.ok() ? (*store)->LoadJobs() : store.status();
  if (!jobs.ok()) return violations.push_back(std::string(jobs.status().message()));
  std::map<std::string, const JobRecord*> by_key;
  for (const Store::StoredJob& job : *jobs) {
    const JobRecord& record = job.record;
    if (!by_key.emplace(record.idempotency_key, &record).second)
      violations.push_back(record.idempotency_key + " is there twice");
    const auto events = (*store)->LoadEvents(record.id, 0, 1000);
    int64_t sequence = 0;
    for (const JobEvent& event : *events) {
      if (event.sequence != ++sequence)
        violations.push_back(absl::StrCat(record.id.value, ": event ", sequence, " is missing"));
    }
    if (sequence != record.events)
      violations.push_back(absl::StrCat(record.id.value, " has ", sequence, " events of ", record.events));
  }
  for (const auto& [key, id] : ledger.ids()) {
    const auto found = by_key.find(key);
    if (found == by_key.end()) {
      violations.push_back(absl::StrCat("job ", id, " of ", key, " is lost"));
    } else if (found->second->id.value != id) {
      violations.push_back(absl::StrCat(key, " was acknowledged as ", id, " and is ", found->second->id.value));
    } else if (ledger.cancelled().count(id) != 0 && found->second->state != JobState::kCancelled) {
      violations.push_back(absl::StrCat(id, ": its cancellation is lost"));
    }
  }
}

}  // namespace

absl::StatusOr<KillsResult> KillAgainAndAgain(const KillsOptions& options) {
  KillsResult result;
  Ledger ledger;
  std::atomic<bool> stop{false};
  absl::Status status;
  {
    KilledServer server(options, FreePort());
    std::vector<std::unique_ptr<Submitter>> submitters;
    std::vector<std::thread> threads;
    const milliseconds pace(1000 * options.clients / options.submissions_per_second);
    for (int c = 0; c < options.clients; ++c) {
      submitters.push_back(std::make_unique<Submitter>(c, server.address(), pace, ledger, stop));
      threads.emplace_back([submitter = submitters.back().get()] { submitter->Run(); });
    }
    status = KillThem(options, server, result);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    for (const auto& submitter : submitters) {
      result.submitted += submitter->submitted();
      result.retried += submitter->retried();
      result.already_there += submitter->already_there();
    }
  }
  if (!status.ok()) return status;
  result.cancelled = static_cast<int64_t>(ledger.cancelled().size());
  result.violations = ledger.violations();
  CheckStore(options, ledger, result.violations);
  return result;
}

}  // namespace lynx::server

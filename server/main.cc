// lynx-server: accepts jobs, plans them, places them on nodes, and watches them until they end.
//
// Exit codes: 0: stopped by SIGTERM or SIGINT, or moved the store; 1: the data directory or its database cannot be used; 2:
// wrong flags, or an address on which it cannot listen; 3: it led, and another server leads now: start it again, and it stands
// by.
#include <grpc/support/log.h>
#include <poll.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/version.h"
#include "node/daemon.h"
#include "node/flags.h"
#include "node/listen_address.h"
#include "node/log.h"
#include "node/server_addresses.h"
#include "node/solver_process.h"
#include "node/wake.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"
#include "server/server.h"
#include "server/store/postgres_connection.h"

namespace lynx::server {
namespace {

constexpr int kExitStore = 1;
constexpr int kExitUsage = 2;
constexpr int kExitLease = 3;
constexpr Nanos kMaxHeartbeat{60'000'000'000};

struct Flags {
  std::string listen = "127.0.0.1:7470";
  std::string advertise;
  std::string data_dir;
  std::string store;
  std::string move_store;
  std::string metrics_address = "127.0.0.1:7471";
  std::string page_address = kAutoPage;
  std::string node_timeout = "60s";
  std::string measure_timeout = "60s";
  std::string heartbeat = "2s";
  int64_t keep_jobs = 10'000;
  std::string log_level = "info";
  bool tls = false;
  bool insecure = false;
  bool no_leases = false;
  std::string encrypt_ranks = "off";
  std::string tls_names;
  std::string certificate_life = "720h";
  std::string authority_life = "87600h";
  bool new_admin = false;
  int64_t read_rate = -1;
  int64_t change_rate = -1;
};

[[noreturn]] void Fail(int code, const absl::Status& status) {
  std::fprintf(stderr, "lynx-server: %s\n", std::string(status.message()).c_str());
  std::exit(code);
}

absl::StatusOr<Nanos> ParseTime(const std::string& text, const std::string& flag, int max_years = 1) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration() && duration < absl::Hours(24 * 365 * max_years)) {
    return Nanos(absl::ToInt64Nanoseconds(duration));
  }
  return absl::InvalidArgumentError(absl::StrCat(flag, " '", text, "' is not a time above zero and below ", 365 * max_years,
                                                 " days: write for example 60s, 1.5s, 500ms or 2h"));
}

// Makes a plan on a thread of the planning pool. For RecomputeMode::kOpt it uses the exact solver, which runs as a process; the
// thread waits for it.
absl::StatusOr<PlanResult> PlanWithSolver(const PlanRequest& request) {
  if (request.spec.recompute != RecomputeMode::kOpt) return MakePlan(request);
  PlanRequest with = request;
  LYNX_ASSIGN_OR_RETURN(with.exact, SolverInProcess({}));
  return MakePlan(with);
}

bool IsLoopback(const std::string& listen) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(listen);
  return address.ok() && address->loopback;
}

// `value` is the flag's value in calls per second; 0: no limit; -1: the rate is `by_default`. The burst is the number of calls
// in five seconds at this rate.
absl::StatusOr<Rate> RateOf(const std::string& flag, int64_t value, int64_t by_default) {
  if (value < -1 || value > 1'000'000)
    return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, " is not between 0 and 1000000"));
  const auto per_second = static_cast<double>(value == -1 ? by_default : value);
  return Rate{.per_second = per_second, .burst = std::max(1.0, 5 * per_second)};
}

absl::Status CheckAdvertised(const std::string& text) {
  // The text is sent in the metadata of calls, and clients parse it.
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f' && c != '/'; });
  const absl::StatusOr<ServerAddresses> parsed = ServerAddresses::Parse(text);
  if (text.empty() || (printable && parsed.ok() && !parsed->several() && parsed->present() == text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--advertise '", text, "' is not HOST:PORT: write the one address by which clients reach this server"));
}

absl::StatusOr<ServerOptions> OptionsOf(const Flags& flags) {
  ServerOptions options;
  options.listen = flags.listen;
  options.tls = flags.tls;
  options.insecure = flags.insecure;
  if (!flags.tls_names.empty()) options.tls_names = absl::StrSplit(flags.tls_names, ',');
  LYNX_ASSIGN_OR_RETURN(options.certificate_life, ParseTime(flags.certificate_life, "--certificate-life"));
  if (options.certificate_life < Nanos(1'000'000'000)) return absl::InvalidArgumentError("--certificate-life is less than 1s");
  LYNX_ASSIGN_OR_RETURN(options.authority_life, ParseTime(flags.authority_life, "--authority-life", 50));
  // A node gets the new certificate of the authority when it renews its own, which it must do while it still trusts the old
  // one: each is renewed after two thirds of its life.
  if (options.authority_life / 3 < options.certificate_life) {
    return absl::InvalidArgumentError("--authority-life is less than three times --certificate-life");
  }
  options.new_admin = flags.new_admin;
  const bool open = flags.insecure || (!flags.tls && IsLoopback(flags.listen));
  // Without TLS the server cannot tell callers apart, so by default there are no rate limits.
  LYNX_ASSIGN_OR_RETURN(options.limits.reads, RateOf("--read-rate", flags.read_rate, open ? 0 : 100));
  LYNX_ASSIGN_OR_RETURN(options.limits.changes, RateOf("--change-rate", flags.change_rate, open ? 0 : 20));
  options.data_directory = flags.data_dir;
  options.store = flags.store;
  LYNX_RETURN_IF_ERROR(CheckAdvertised(flags.advertise));
  options.advertise = flags.advertise;
  // A server that lost the lease ends at once, as if it was killed: it must not direct nodes any longer.
  options.ended = [](ServerEnd why, const absl::Status& status) {
    std::fprintf(stderr, "lynx-server: %s\n", std::string(status.message()).c_str());
    std::fflush(nullptr);
    std::_Exit(why == ServerEnd::kLeaseLost ? kExitLease : kExitStore);
  };
  options.metrics_address = flags.metrics_address;
  options.page_address = flags.page_address;
  ControllerOptions& controller = options.core.controller;
  LYNX_ASSIGN_OR_RETURN(controller.node_timeout, ParseTime(flags.node_timeout, "--node-timeout"));
  LYNX_ASSIGN_OR_RETURN(controller.measure_timeout, ParseTime(flags.measure_timeout, "--measure-timeout"));
  LYNX_ASSIGN_OR_RETURN(controller.heartbeat, ParseTime(flags.heartbeat, "--heartbeat"));
  if (controller.heartbeat > kMaxHeartbeat) {
    return absl::InvalidArgumentError(absl::StrCat("--heartbeat ", flags.heartbeat, " is longer than 60s"));
  }
  if (flags.keep_jobs < 1 || flags.keep_jobs > 1'000'000) {
    return absl::InvalidArgumentError(absl::StrCat("--keep-jobs ", flags.keep_jobs, " is not between 1 and 1000000"));
  }
  controller.kept_jobs = static_cast<size_t>(flags.keep_jobs);
  controller.leases = !flags.no_leases;
  if (!ParseEnum(flags.encrypt_ranks, controller.encryption)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--encrypt-ranks '", flags.encrypt_ranks, "' is not off, on or except-nccl"));
  }
  if (controller.encryption != RankEncryption::kOff && flags.insecure && !IsLoopback(flags.listen)) {
    return absl::InvalidArgumentError(
        "--encrypt-ranks needs TLS on an address that other machines reach: with --insecure the secrets of ranks go to the "
        "nodes "
        "in plain text");
  }
  controller.wanted_shapes = WantedShapes;
  controller.wanted_shape_of = WantedShapeOf;
  options.core.planner = PlanWithSolver;
  return options;
}

// Carries out --move-store, and ends the process.
[[noreturn]] void Move(const ServerOptions& options, const std::string& to) {
  const absl::StatusOr<MovedStore> moved = MoveStoreOf(options, to);
  if (!moved.ok()) {
    Fail(moved.status().code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitStore, moved.status());
  }
  for (const MovedTable& table : moved->tables) {
    std::printf("%-14s %10lld rows  %s\n", table.name.c_str(), static_cast<long long>(table.rows), table.digest.c_str());
  }
  std::printf("%s has all rows of %s, which is as it was: start lynx-server with --store %s\n", moved->to.c_str(),
              moved->from.c_str(), WithoutPassword(to).c_str());
  std::exit(0);
}

int Main(int argc, char** argv) {
  Flags flags;
  ParseCommandLine(
      argc, argv, "lynx-server", "takes training jobs, plans them and runs them on the nodes that attach",
      {{"listen", &flags.listen, "HOST:PORT to listen on; port 0 takes a free one"},
       {"advertise", &flags.advertise,
        "HOST:PORT by which clients reach this server, for those that ask another server; empty: the first of --tls-names, or "
        "where it listens, or this machine's name where it listens on all addresses"},
       {"data-dir", &flags.data_dir, "directory of the database, keys and checkpoints; made if it is not there; required"},
       {"store", &flags.store,
        "where the server's state is kept: sqlite:PATH, or postgresql://USER@HOST/DATABASE with the password in PGPASSWORD or "
        "a password file, of which several servers may share one: one leads, the others stand by; empty: lynx.db in "
        "--data-dir"},
       {"move-store", &flags.move_store,
        "copy the server's state from --store to this address, which must be empty, compare both, and end"},
       {"metrics-address", &flags.metrics_address, "HOST:PORT of the pages /metrics, /healthz and /readyz; empty: none"},
       {"page-address", &flags.page_address,
        "HOST:PORT of the live page for browsers, on loopback; empty: none; auto: 127.0.0.1:7472, or a free port, where the "
        "server listens on loopback without TLS, else none"},
       {"node-timeout", &flags.node_timeout, "absence after which a node counts as lost"},
       {"heartbeat", &flags.heartbeat, "how often nodes report when nothing has changed; longer for thousands of them"},
       {"measure-timeout", &flags.measure_timeout, "most time to measure for a plan"},
       {"no-leases", &flags.no_leases, "nodes that are cut off go on training, though their work may be given to others"},
       {"encrypt-ranks", &flags.encrypt_ranks,
        "whether ranks encrypt what they send to each other: off; on (ranks that would use NCCL are refused); except-nccl "
        "(what "
        "NCCL moves between GPUs stays plain); give lynx-agent --encrypt-ranks, too, so that plans count its cost"},
       {"keep-jobs", &flags.keep_jobs, "ended jobs to remember; older ones are forgotten, what they wrote stays"},
       {"log-level", &flags.log_level, "trace, debug, info, warn or error"},
       {"tls", &flags.tls, "TLS and tokens on a loopback address, too; on all others it is so unless --insecure is given"},
       {"tls-names", &flags.tls_names,
        "names and addresses by which clients reach this server, with commas, besides its own; people's context files name the "
        "first"},
       {"certificate-life", &flags.certificate_life, "of certificates of nodes and the server; renewed after two thirds of it"},
       {"authority-life", &flags.authority_life,
        "of the certificate of the cluster's authority; renewed with the same key after two thirds of it"},
       {"new-admin", &flags.new_admin, "write a new token for the first admin into --data-dir, as at the first start with TLS"},
       {"read-rate", &flags.read_rate, "calls that read, a second, of each user; 0: any; -1: 100 with TLS, without it any"},
       {"change-rate", &flags.change_rate,
        "calls that change something, a second, of each user; 0: any; -1: 20 with TLS, without it any"},
       {"insecure", &flags.insecure,
        "on addresses that other machines reach: no TLS and no tokens; whoever reaches the port may do everything"}});
  if (const absl::Status log = StartLog(flags.log_level); !log.ok()) Fail(kExitUsage, log);
  const absl::StatusOr<ServerOptions> options = OptionsOf(flags);
  if (!options.ok()) Fail(kExitUsage, options.status());
  if (!flags.move_store.empty()) Move(*options, flags.move_store);
  // StopSignals blocks the signals. It must be made before any other thread starts, because threads inherit the signal mask.
  StopSignals signals;
  StopWatchingLockOrder();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  gpr_set_log_function([](gpr_log_func_args* args) { LogDebug("grpc: {}", args->message); });

  RealClock clock;
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(*options, clock);
  if (!server.ok()) {
    const absl::StatusCode code = server.status().code();
    const bool address = code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kUnavailable;
    Fail(address ? kExitUsage : kExitStore, server.status());
  }
  LogInfo("lynx-server {} listens on {}", kVersion, (*server)->address());
  if (!(*server)->metrics_address().empty()) LogInfo("metrics at http://{}/metrics", (*server)->metrics_address());

  if (!(*server)->page_address().empty()) LogInfo("live page at http://{}/", (*server)->page_address());

  pollfd fd{.fd = signals.fd(), .events = POLLIN, .revents = 0};
  std::optional<int> signal;
  while (!signal.has_value()) {
    ::poll(&fd, 1, -1);
    signal = signals.Take();
  }
  LogInfo("{}: stopping", ::strsignal(*signal));
  (*server)->Stop();
  LogInfo("stopped");
  // Exits without destructors of globals, because threads that cannot be joined (a plan in progress, the metrics page) still
  // use them.
  std::fflush(nullptr);
  std::_Exit(0);
}

}  // namespace
}  // namespace lynx::server

int main(int argc, char** argv) { return lynx::server::Main(argc, argv); }

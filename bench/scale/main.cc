// One lynx-server and thousands of nodes over real gRPC on one machine: what it costs to hold them, how fast submissions are
// acknowledged, how long it takes to start a gang (a job of many ranks), and how soon everything is back after a kill -9.
//
//   scale_bench [--nodes 10000] [--devices 1] [--settle 10] [--seconds 60] [--load 30] [--rate 200] [--storm 10] [--gang 1024]
//   [--gangs 5]
//               [--nice 5]
//
// Here the agent and the worker daemon of a node share one connection; on a real node each has its own. The nodes'
// process shares the machine with the server, and gives way to it and to the process that submits. Prints a Markdown
// table.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/scale/fleet_process.h"
#include "bench/scale/load.h"
#include "common/check.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "node/daemon.h"
#include "node/file.h"
#include "node/process.h"
#include "proto/convert.h"

namespace lynx::scale {
namespace {

using std::chrono::steady_clock;

struct Arguments {
  int nodes = 10'000, devices = 1, settle = 10, seconds = 60, load = 30, storm = 10, gang = 1024, gangs = 5, nice = 5;
  double rate = 200;
};
constexpr int kStormRate = 20;  // submissions per second while the server is away and comes back

double Since(steady_clock::time_point begin) { return std::chrono::duration<double>(steady_clock::now() - begin).count(); }
[[noreturn]] void Fail(const std::string& reason) {
  throw std::runtime_error(reason);  // not exit(): the destructor of ServerProcess must kill the server
}
void Row(const std::string& what, const std::string& value) {
  std::printf("| %s | %s |\n", what.c_str(), value.c_str());
  std::fflush(stdout);
}
std::string Millis(const std::vector<double>& sorted) {
  return absl::StrFormat("%.1f / %.1f / %.1f ms (%d)", Quantile(sorted, 0.5), Quantile(sorted, 0.99), Quantile(sorted, 1),
                         sorted.size());
}

class ServerProcess {
 public:
  ServerProcess() {
    char pattern[] = "/tmp/lynx-scale-XXXXXX";
    LYNX_CHECK(::mkdtemp(pattern) != nullptr);
    folder_ = pattern;
    Start("127.0.0.1:0");
  }
  ~ServerProcess() {
    Kill();
    std::filesystem::remove_all(folder_);
  }
  const std::string& address() const { return address_; }
  void Kill() {
    if (!child_.pidfd.valid()) return;
    SignalProcess(child_.pidfd, SIGKILL);
    while (!HasEnded(child_.pidfd)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ReapChild(child_.pidfd);
    child_.pidfd.Reset();
  }
  void Restart() { Start(address_); }
  // A field of /proc/PID/status, in MiB.
  double Memory(const std::string& field) const {
    std::ifstream file(absl::StrCat("/proc/", child_.pid, "/status"));
    for (std::string line; std::getline(file, line);) {
      if (line.rfind(field + ":", 0) != 0) continue;
      int64_t kib = 0;
      LYNX_CHECK(absl::SimpleAtoi(
          std::string(absl::StripAsciiWhitespace(line.substr(field.size() + 1, line.size() - field.size() - 4))), &kib));
      return static_cast<double>(kib) / 1024;
    }
    return 0;
  }
  // Seconds of processor time that the server process has used since it began.
  double Cpu() const {
    const std::string text = ReadFile(absl::StrCat("/proc/", child_.pid, "/stat")).value();
    const std::vector<std::string> words = absl::StrSplit(text.substr(text.rfind(')') + 2), ' ');
    return (std::stod(words[11]) + std::stod(words[12])) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

 private:
  void Start(const std::string& listen) {
    const std::string file = folder_ + "/data/server.address";
    std::filesystem::remove(file);
    absl::StatusOr<Child> child = SpawnInSession({BesideThisBinary("lynx-server"), "--data-dir", folder_ + "/data", "--listen",
                                                  listen, "--metrics-address=", "--heartbeat=5s", "--log-level=warn"},
                                                 {});
    LYNX_CHECK(child.ok());
    child_ = *std::move(child);
    while (!std::filesystem::exists(file)) {
      LYNX_CHECK(!HasEnded(child_.pidfd));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    address_ = std::string(absl::StripAsciiWhitespace(ReadFile(file).value()));
  }
  std::string folder_, address_;
  Child child_;
};

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : arguments_(arguments),
        fleet_({.server = server_.address(), .nodes = arguments.nodes, .devices = arguments.devices}, arguments.nice),
        stub_(v1::Jobs::NewStub(grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials()))) {}

  void Run() {
    std::printf("| %d nodes of %d devices | p50 / p99 / most (count) |\n|---|---:|\n", arguments_.nodes, arguments_.devices);
    Row("all attached after", absl::StrFormat("%.1f s", AwaitAll(begin_)));
    Hold();
    Submissions();
    Gangs();
    Restart();
    Row("server's memory, most", absl::StrFormat("%.0f MiB", std::max(most_, server_.Memory("VmHWM"))));
  }

 private:
  double AwaitAll(steady_clock::time_point begin) {
    while (fleet_.attached() < arguments_.nodes) {
      if (Since(begin) > 120) {
        const std::string text = absl::StrCat("only ", fleet_.attached(), " nodes are attached after 120 s");
        Fail(absl::StrCat(text, fleet_.Ended()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return Since(begin);
  }

  void Hold() {
    std::this_thread::sleep_for(std::chrono::seconds(arguments_.settle));
    fleet_.TakeIntervals();
    fleet_.TakeAnswers();
    const double cpu = server_.Cpu();
    const auto begin = steady_clock::now();
    std::this_thread::sleep_for(std::chrono::seconds(arguments_.seconds));
    Row(absl::StrCat("between two answered reports of a node, idle, ", arguments_.seconds, " s"),
        Millis(fleet_.TakeIntervals()));
    Row("from a report to its answer", Millis(fleet_.TakeAnswers()));
    Row("server's cores in use", absl::StrFormat("%.2f", (server_.Cpu() - cpu) / Since(begin)));
    Row("server's memory", absl::StrFormat("%.0f MiB", server_.Memory("VmRSS")));
  }

  void Submissions() {
    // The first jobs of a shape wait until the op times of the shape are measured. So some jobs run before the timed ones.
    Submit(server_.address(), "warm-", 10, 1, 1);
    AwaitEnds();
    const int count = static_cast<int>(arguments_.rate * arguments_.load);
    const double cpu = server_.Cpu();
    const auto begin = steady_clock::now();
    LoadResult result = Submit(server_.address(), "load-", arguments_.rate, count, 1);
    Row(absl::StrFormat("submission of a job to its acknowledgement, %g a second for %d s", arguments_.rate, arguments_.load),
        Millis(result.answers));
    Row("server's cores in use meanwhile", absl::StrFormat("%.2f", (server_.Cpu() - cpu) / Since(begin)));
    Row("between two answered reports of a node meanwhile", Millis(fleet_.TakeIntervals()));
    if (result.asked_again > 0 || !result.refused.empty()) {
      Row("asked again, refused", absl::StrCat(result.asked_again, ", ", result.refused.size(),
                                               result.refused.empty() ? "" : ": " + result.refused[0]));
    }
    AwaitEnds();
    Row("all of them done after", absl::StrFormat("%.1f s", Since(begin)));
    std::vector<double> starts;
    for (const v1::Job& job : Jobs()) {
      if (job.spec().name().rfind("load-", 0) == 0 && job.started_unix_ns() > 0) {
        starts.push_back(static_cast<double>(job.started_unix_ns() - job.submitted_unix_ns()) * 1e-6);
      }
    }
    std::sort(starts.begin(), starts.end());
    Row("submission to all ranks running, of the newest 1,000", Millis(starts));
    known_.insert(result.ids.begin(), result.ids.end());
  }

  std::vector<v1::Job> Jobs() {
    grpc::ClientContext context;
    v1::ListJobsRequest request;
    request.set_limit(1000);
    v1::ListJobsResponse response;
    LYNX_CHECK(stub_->ListJobs(&context, request, &response).ok());
    return {response.jobs().begin(), response.jobs().end()};
  }

  void AwaitEnds() {
    while (true) {
      const std::vector<v1::Job> jobs = Jobs();
      if (std::all_of(jobs.begin(), jobs.end(), [](const v1::Job& job) { return job.state() >= v1::JOB_STATE_SUCCEEDED; }))
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

  v1::Job Get(const std::string& id) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_job_id(id);
    request.set_include_events(true);
    v1::GetJobResponse response;
    LYNX_CHECK(stub_->GetJob(&context, request, &response).ok());
    return response.job();
  }

  std::string SubmitGang(int number) {
    grpc::ClientContext context;
    v1::SubmitJobRequest request;
    *request.mutable_spec() = ToProto(SpecOf(absl::StrCat("gang-", number), arguments_.gang, 1'000'000, arguments_.devices));
    request.set_idempotency_key(absl::StrCat("gang-", number));
    v1::SubmitJobResponse response;
    const grpc::Status status = stub_->SubmitJob(&context, request, &response);
    if (!status.ok()) Fail(absl::StrCat("a gang is refused: ", status.error_message()));
    known_.insert(response.job().id());
    return response.job().id();
  }

  void Cancel(const std::string& id) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_job_id(id);
    v1::CancelJobResponse response;
    LYNX_CHECK(stub_->CancelJob(&context, request, &response).ok());
    while (Get(id).state() < v1::JOB_STATE_SUCCEEDED) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }

  void Gangs() {
    if (static_cast<int64_t>(arguments_.nodes) * arguments_.devices < arguments_.gang) return;
    std::vector<double> planned, placed, told, running;
    for (int i = 0; i <= arguments_.gangs; ++i) {
      const int64_t before = fleet_.told(), ran = fleet_.running();
      const auto begin = steady_clock::now();
      gang_ = SubmitGang(i);
      double all_told = 0;
      while (fleet_.running() < ran + arguments_.gang) {
        if (all_told == 0 && fleet_.told() >= before + arguments_.gang) all_told = Since(begin) * 1e3;
        if (Since(begin) > 120) Fail(absl::StrCat("the gang does not run: ", Get(gang_).ShortDebugString().substr(0, 4000)));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const double all_run = Since(begin) * 1e3;
      const v1::Job job = Get(gang_);
      const auto at = [&](const char* kind) {
        for (const v1::JobEvent& event : job.events()) {
          if (event.kind() == kind) return static_cast<double>(event.time_unix_ns() - job.submitted_unix_ns()) * 1e-6;
        }
        return 0.0;
      };
      if (i > 0) {  // the first gang waits for measurements
        planned.push_back(at("planned"));
        placed.push_back(at("placed") - at("planned"));
        told.push_back(all_told - at("planned"));
        running.push_back(all_run - at("planned"));
      }
      if (i < arguments_.gangs) Cancel(gang_);
    }
    for (auto* values : {&planned, &placed, &told, &running}) std::sort(values->begin(), values->end());
    Row(absl::StrCat("a job of ", arguments_.gang, " ranks: from submission to its plan"), Millis(planned));
    Row("from its plan to its placement, decided and stored", Millis(placed));
    Row("from its plan until all ranks' nodes are told", Millis(told));
    Row("from its plan until all ranks run", Millis(running));
  }

  void Restart() {
    most_ = server_.Memory("VmHWM");
    const int64_t generation = gang_.empty() ? 0 : Get(gang_).generation();
    server_.Kill();
    const auto killed = steady_clock::now();
    std::jthread storm([&] {
      LoadResult result = Submit(server_.address(), "storm-", kStormRate, kStormRate * arguments_.storm, 1);
      known_.insert(result.ids.begin(), result.ids.end());
      storm_ = std::move(result);
    });
    server_.Restart();
    const auto begin = steady_clock::now();
    const double away = Since(killed);
    while (fleet_.attached() == arguments_.nodes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Row(absl::StrFormat("kill -9, server back after %.1f s: all nodes attached again after another", away),
        absl::StrFormat("%.1f s", AwaitAll(begin)));
    storm.join();
    Row(absl::StrFormat("submissions during that, %d a second for %d s", kStormRate, arguments_.storm), Millis(storm_.answers));
    stub_ = v1::Jobs::NewStub(grpc::CreateChannel(server_.address(), grpc::InsecureChannelCredentials()));
    int lost = 0;
    for (const std::string& id : known_) lost += Get(id).id() == id ? 0 : 1;
    Row("acknowledged jobs that are there, lost", absl::StrCat(known_.size() - static_cast<size_t>(lost), ", ", lost));
    if (gang_.empty()) return;
    const v1::Job job = Get(gang_);
    Row("the job that trained meanwhile",
        absl::StrCat(job.generation() == generation ? "goes on" : "was begun anew", ", ", v1::JobState_Name(job.state())));
  }

  const Arguments arguments_;
  ServerProcess server_;
  const steady_clock::time_point begin_ = steady_clock::now();
  FleetProcess fleet_;
  std::unique_ptr<v1::Jobs::Stub> stub_;
  std::set<std::string> known_;
  LoadResult storm_;
  std::string gang_;
  double most_ = 0;
};

}  // namespace
}  // namespace lynx::scale

int main(int argc, char** argv) {
  lynx::scale::Arguments arguments;
  CLI::App app("one lynx-server and thousands of nodes over gRPC");
  app.add_option("--nodes", arguments.nodes);
  app.add_option("--devices", arguments.devices, "of each node");
  app.add_option("--settle", arguments.settle, "seconds until the nodes count as idle")->capture_default_str();
  app.add_option("--seconds", arguments.seconds, "to hold the nodes idle");
  app.add_option("--load", arguments.load, "seconds of submissions at the rate")->capture_default_str();
  app.add_option("--storm", arguments.storm, "seconds of submissions while the server is killed and comes back")
      ->capture_default_str();
  app.add_option("--rate", arguments.rate, "submissions a second");
  app.add_option("--gang", arguments.gang, "ranks of a large job");
  app.add_option("--gangs", arguments.gangs, "how many, one after another");
  app.add_option("--nice", arguments.nice,
                 "how far the nodes' process gives way; where others need the machine, too, 0, or it never has its turn");
  CLI11_PARSE(app, argc, argv);
  lynx::StopWatchingLockOrder();
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  try {
    lynx::scale::Bench(arguments).Run();
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "scale_bench: %s\n", error.what());
    return 1;
  }
}

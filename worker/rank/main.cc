// lynx-rank runs one rank of a training job, or a measurement.
//
//   lynx-rank --config FILE --listen-fd N --report-file FILE [--yield-file FILE] [--lease-file FILE] [--progress-file FILE]
//             [--run-as UID:GID:GROUPS]
//                                                    trains; started by the worker daemon (cancellation.h: yield)
//   lynx-rank --measure FILE | --measure-link FILE   measures; started by the agent (see worker/contract/measurement.h)
//   lynx-rank --measure-gpu-links FILE               measures the links between a node's GPUs; started by the agent
//   lynx-rank --check-cuda UUID                      prints the backend's name and, in a second line, how many bytes of the
//                                                    GPU are free; prints on stderr why it cannot use the GPU
//
// Exit codes: see rank_report.h; 2: wrong usage.
#include <getopt.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/collectives/bounded_call.h"
#include "worker/contract/measurement.h"
#include "worker/contract/rank_config.h"
#include "worker/contract/rank_progress.h"
#include "worker/rank/measure/measure_device.h"
#include "worker/rank/measure/measure_gpu_links.h"
#include "worker/rank/measure/measure_link.h"
#include "worker/rank/peers/cancellation.h"
#include "worker/rank/peers/idle_limit.h"
#include "worker/rank/peers/with_cause.h"
#include "worker/rank/process/drop_privileges.h"
#include "worker/rank/process/lease_watch.h"
#include "worker/rank/process/memory_report.h"
#include "worker/rank/process/pinning.h"
#include "worker/rank/process/progress_signs.h"
#include "worker/rank/rank_backend.h"
#include "worker/rank/rank_run.h"
#include "worker/rank/records/report_file.h"

namespace lynx::worker {
namespace {

constexpr int kExitUsage = 2;
constexpr char kCudaSuffix[] = "-cuda";  // end of the binary's name

struct Arguments {
  std::string config;
  int listen_fd = -1;
  std::string report_file;
  std::string yield_file;
  std::string run_as;
  std::string lease_file;
  std::string progress_file;
  std::string measure;
  std::string measure_link;
  std::string measure_gpu_links;
  std::string check_cuda;
};

// Returns false for an unknown option or an option without its value. In this case getopt has printed a message to stderr.
bool ParseArguments(int argc, char** argv, Arguments& arguments) {
  constexpr option kOptions[] = {
      {"config", required_argument, nullptr, 'c'},        {"listen-fd", required_argument, nullptr, 'l'},
      {"report-file", required_argument, nullptr, 'r'},   {"measure", required_argument, nullptr, 'm'},
      {"measure-link", required_argument, nullptr, 'n'},  {"check-cuda", required_argument, nullptr, 'u'},
      {"yield-file", required_argument, nullptr, 'y'},    {"measure-gpu-links", required_argument, nullptr, 'g'},
      {"lease-file", required_argument, nullptr, 'e'},    {"run-as", required_argument, nullptr, 'a'},
      {"progress-file", required_argument, nullptr, 'p'}, {}};
  for (int option; (option = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (option) {
      case 'c': arguments.config = optarg; break;
      case 'l': arguments.listen_fd = std::atoi(optarg); break;
      case 'r': arguments.report_file = optarg; break;
      case 'a': arguments.run_as = optarg; break;
      case 'y': arguments.yield_file = optarg; break;
      case 'e': arguments.lease_file = optarg; break;
      case 'p': arguments.progress_file = optarg; break;
      case 'm': arguments.measure = optarg; break;
      case 'n': arguments.measure_link = optarg; break;
      case 'g': arguments.measure_gpu_links = optarg; break;
      case 'u': arguments.check_cuda = optarg; break;
      default: return false;
    }
  }
  return true;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

// What SIGTERM and SIGINT do. kEnd: they end the process, which is right for a measurement. kBlocked: they are blocked until a
// Cancellation reads them.
enum class StopSignals : uint8_t { kEnd, kBlocked };

// Pins the process to the cores, sets the BLAS's number of threads, and blocks the signals if `signals` is kBlocked. If one of
// these settings was different, the process then restarts itself with execv, for two reasons. The BLAS reads its number of
// threads and starts its threads before main. And a signal ends the process if even one of these threads has not blocked it. A
// restarted process keeps its cores, its blocked signals, its descriptors and its id.
absl::Status StartOnCores(const std::vector<int32_t>& cores, int threads, StopSignals signals, char** argv) {
  LYNX_ASSIGN_OR_RETURN(const PinResult pinned, PinCallingThread(cores));
  const bool as_asked = signals == StopSignals::kEnd || BlockStopSignals() == BlockResult::kWereBlocked;
  const std::string wanted = std::to_string(threads);
  const char* const current = std::getenv("OPENBLAS_NUM_THREADS");
  if (pinned == PinResult::kWasPinned && as_asked && current != nullptr && wanted == current) return absl::OkStatus();
  setenv("OPENBLAS_NUM_THREADS", wanted.c_str(), 1);
  setenv("OMP_NUM_THREADS", wanted.c_str(), 1);
  execv("/proc/self/exe", argv);
  return absl::InternalError(absl::StrCat("cannot start again with OPENBLAS_NUM_THREADS set: ", std::strerror(errno)));
}

// Replaces this program by the program with the suffix kCudaSuffix, which is linked with CUDA, if it exists in the same folder.
// If it does not exist, this program continues, and gives the error when it makes the backend.
void StartWithCuda(char** argv) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error || self.ends_with(kCudaSuffix)) return;
  execv((self + kCudaSuffix).c_str(), argv);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "lynx-rank: %s\n", std::string(status.message()).c_str());
  return kRankExitFailure;
}

int PrintResult(const std::string& text) { return std::puts(text.c_str()) < 0 ? kRankExitFailure : kRankExitOk; }

int RunMeasure(const std::string& path, char** argv) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<MeasureRequest> request = ParseMeasureRequest(*text);
  if (!request.ok()) return Fail(Annotate(request.status(), path));
  if (request->device_kind == DeviceKind::kCuda) StartWithCuda(argv);
  const int threads = std::max<int>(1, static_cast<int>(request->cores.size()));
  if (const absl::Status started = StartOnCores(request->cores, threads, StopSignals::kEnd, argv); !started.ok())
    return Fail(started);
  const RankDevice device{.kind = request->device_kind, .uuid = request->device_uuid};
  const absl::StatusOr<MeasureResult> result = MeasureDevice(*request, [&] { return MakeRankBackend(device, threads); });
  return result.ok() ? PrintResult(MeasureResultText(*result)) : Fail(result.status());
}

int RunMeasureLink(const std::string& path, char** argv) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<LinkRequest> request = ParseLinkRequest(*text);
  if (!request.ok()) return Fail(Annotate(request.status(), path));
  if (const absl::Status started = StartOnCores({}, 1, StopSignals::kEnd, argv); !started.ok()) return Fail(started);
  const absl::StatusOr<LinkResult> result = MeasureLink(*request);
  return result.ok() ? PrintResult(LinkResultText(*result)) : Fail(result.status());
}

int RunMeasureGpuLinks(const std::string& path, char** argv) {
  StartWithCuda(argv);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<GpuLinksRequest> request = ParseGpuLinksRequest(*text);
  if (!request.ok()) return Fail(Annotate(request.status(), path));
  ShowGpus(request->device_uuids);
  const absl::StatusOr<GpuLinksResult> result = MeasureGpuLinks(*request, MakeCudaBackend);
  return result.ok() ? PrintResult(GpuLinksResultText(*result)) : Fail(result.status());
}

int RunTraining(const Arguments& arguments, char** argv) {
  if (!arguments.run_as.empty()) {
    if (const absl::Status became = DropPrivileges(arguments.run_as); !became.ok()) return Fail(became);
  }
  absl::StatusOr<ReportFile> reports = ReportFile::Open(arguments.report_file);
  if (!reports.ok()) return Fail(reports.status());
  const auto fail = [&](const absl::Status& status) {
    reports->Append(RankFailure{.reason = std::string(status.message()), .peer_lost = false, .cause = CauseOf(status)});
    return Fail(status);
  };
  const absl::StatusOr<std::string> text = ReadFile(arguments.config);
  if (!text.ok()) return fail(text.status());
  const absl::StatusOr<RankConfig> config = ParseRankConfig(*text);
  if (!config.ok()) return fail(WithCause(Annotate(config.status(), arguments.config), FaultCause::kProgram));
  if (config->device.kind == DeviceKind::kCuda) StartWithCuda(argv);
  if (const absl::Status started = StartOnCores(config->cores, config->threads, StopSignals::kBlocked, argv); !started.ok()) {
    return fail(started);
  }
  if (const absl::Status set = ReportWhenMemoryEnds(arguments.report_file); !set.ok()) return fail(set);
  std::optional<LeaseWatch> lease;
  if (!arguments.lease_file.empty()) {
    absl::StatusOr<LeaseFile> file = LeaseFile::OpenToRead(arguments.lease_file);
    if (!file.ok()) return fail(file.status());
    lease.emplace(*std::move(file));
  }
  std::optional<ProgressSigns> signs;
  if (!arguments.progress_file.empty()) {
    absl::StatusOr<ProgressFile> file = ProgressFile::OpenToWrite(arguments.progress_file);
    if (!file.ok()) return fail(file.status());
    signs.emplace(*std::move(file));
  }
  Cancellation cancellation(arguments.yield_file);
  std::optional<QuietWork> begins(kIdleLimit);  // a GPU tells nothing of its progress
  const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeRankBackend(config->device, config->threads);
  if (!backend.ok()) {
    const bool memory = absl::IsResourceExhausted(backend.status());
    return fail(WithCause(backend.status(), memory ? FaultCause::kMemory : FaultCause::kDevice));
  }
  begins.reset();
  return RunRank(*config, arguments.listen_fd, **backend, *reports, cancellation);
}

int RunCheckCuda(const std::string& uuid, char** argv) {
  StartWithCuda(argv);
  const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeRankBackend({.kind = DeviceKind::kCuda, .uuid = uuid}, 1);
  if (!backend.ok()) return Fail(backend.status());
  if (const absl::Status works = (*backend)->Finish(); !works.ok()) return Fail(works);
  const absl::StatusOr<Bytes> free_memory = (*backend)->FreeMemory();
  if (!free_memory.ok()) return Fail(free_memory.status());
  return PrintResult(absl::StrCat((*backend)->Name(), "\n", free_memory->value));
}

int Main(int argc, char** argv) {
  // If the daemon has ended, a write to a broken pipe must not end the rank.
  signal(SIGPIPE, SIG_IGN);
  Arguments arguments;
  if (!ParseArguments(argc, argv, arguments)) return kExitUsage;
  if (!arguments.measure.empty()) return RunMeasure(arguments.measure, argv);
  if (!arguments.measure_link.empty()) return RunMeasureLink(arguments.measure_link, argv);
  if (!arguments.measure_gpu_links.empty()) return RunMeasureGpuLinks(arguments.measure_gpu_links, argv);
  if (!arguments.check_cuda.empty()) return RunCheckCuda(arguments.check_cuda, argv);
  if (arguments.config.empty() || arguments.report_file.empty() || arguments.listen_fd < 0) {
    std::fprintf(
        stderr,
        "lynx-rank: give --config, --listen-fd and --report-file, or --measure, --measure-link, --measure-gpu-links or "
        "--check-cuda\n");
    return kExitUsage;
  }
  return RunTraining(arguments, argv);
}

}  // namespace
}  // namespace lynx::worker

int main(int argc, char** argv) {
  const int code = lynx::worker::Main(argc, argv);
  if (lynx::worker::BoundedCall::LeftBehind() == 0) return code;
  std::fflush(nullptr);
  _exit(code);
}

// Looks at this machine. See doctor.h.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/local/doctor.h"
#include "common/clock.h"
#include "common/cores.h"
#include "common/fd.h"
#include "common/metric_names.h"
#include "common/version.h"

namespace lynx::cli {
namespace {

constexpr size_t kBlock = 1 << 20, kBlocks = 64;
constexpr Nanos kPageTime{2'000'000'000};  // how long to wait for a daemon's page of metrics
constexpr size_t kPageBytes = 16 << 20;

int64_t Limit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(limit.rlim_cur);
}

// A value of /proc/meminfo; 0 if it has no such line.
Bytes MemoryLine(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == name) return Bytes(kib * 1024);
  }
  return Bytes(0);
}

int Gpus() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    count += name.size() > 6 && name.starts_with("nvidia") && absl::ascii_isdigit(static_cast<unsigned char>(name[6])) ? 1 : 0;
  }
  return count;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// True if another process listens on the port.
bool IsTaken(int port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return false;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = Loopback(port);
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == EADDRINUSE;
}

// True if a time service has told the kernel that the clock is synchronized. nullopt: the kernel does not allow this process
// to ask, as in some containers.
std::optional<bool> IsClockSynchronized() {
  timex state{};
  const int read = ::adjtimex(&state);
  if (read < 0) return std::nullopt;
  return read != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

// The ports that the packages and 'lynx-server' use by default.
std::vector<PortFacts> LookAtPorts() {
  struct Known {
    int port;
    const char* purpose;
    bool of_server;
    const metric::Metric* metric;  // a metric that the daemon's page always has
  };
  std::vector<PortFacts> ports;
  for (const Known& known :
       {Known{7470, "lynx-server", true, nullptr}, Known{7471, "lynx-server's metrics", true, &metric::kEventQueue},
        Known{7472, "lynx-server's live page", true, nullptr},
        Known{7473, "lynx-agent's metrics", false, &metric::kAgentAttached},
        Known{7474, "lynx-worker's metrics", false, &metric::kWorkerAttached}}) {
    const bool taken = IsTaken(known.port);
    ports.push_back({.port = known.port,
                     .purpose = known.purpose,
                     .taken = taken,
                     .of_server = known.of_server,
                     .answers = taken && known.metric != nullptr && ServesMetric(known.port, known.metric->name)});
  }
  return ports;
}

absl::Status Failed(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " in ", path));
}

// Measures the size of the folder's disk and its speed. The file for the measurement is unlinked as soon as it is open, so that
// nothing is left behind.
absl::Status Measure(DiskFacts& disk) {
  struct statvfs space {};
  if (::statvfs(disk.folder.c_str(), &space) != 0) return Failed("look", disk.folder);
  disk.size = Bytes(static_cast<int64_t>(space.f_blocks * space.f_frsize));
  disk.available = Bytes(static_cast<int64_t>(space.f_bavail * space.f_frsize));
  std::string path = disk.folder + "/.lynx-doctor-XXXXXX";
  const UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (fd.get() < 0) return Failed("make a file", disk.folder);
  ::unlink(path.c_str());
  const std::vector<char> block(kBlock, 'x');
  const RealClock clock;
  const Nanos begin = clock.Monotonic();
  for (size_t i = 0; i < kBlocks; ++i) {
    const ssize_t written = ::write(fd.get(), block.data(), block.size());
    if (written != static_cast<ssize_t>(block.size())) {
      if (written >= 0) errno = ENOSPC;
      return Failed("write 64 MiB", disk.folder);
    }
  }
  if (::fdatasync(fd.get()) != 0) return Failed("sync", disk.folder);
  const double seconds = Seconds(clock.Monotonic() - begin);
  disk.bytes_per_second = static_cast<double>(kBlock * kBlocks) / std::max(seconds, 1e-9);
  return absl::OkStatus();
}

}  // namespace

bool ServesMetric(int port, const std::string& name) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = kPageTime.value / 1'000'000'000, .tv_usec = 0};
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
      ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0) {
    return false;
  }
  const sockaddr_in address = Loopback(port);
  const std::string request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
    return false;
  }
  const RealClock clock;
  const Nanos end = clock.Monotonic() + kPageTime;
  std::string page;
  std::vector<char> buffer(64 << 10);
  while (clock.Monotonic() < end && page.size() < kPageBytes) {
    const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    page.append(buffer.data(), static_cast<size_t>(got));
  }
  return absl::StrContains(page, absl::StrCat("# TYPE ", name, " "));
}

// A socket can be bound only to an address of this machine, so this function tries to bind one.
bool IsThisMachine(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), "0", &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    const UniqueFd fd(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && ::bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0) return true;
  }
  return false;
}

MachineFacts LookAtMachine(const std::string& folder) {
  MachineFacts facts{.version = kVersion,
                     .cores = static_cast<int>(AvailableCores().size()),
                     .gpus = Gpus(),
                     .clock_synchronized = IsClockSynchronized()};
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = absl::StrCat(name.sysname, " ", name.release, " ", name.machine);
  std::error_code error;
  facts.nvidia_driver = std::filesystem::exists("/proc/driver/nvidia/version", error);
  facts.memory = MemoryLine("MemTotal:");
  facts.memory_available = MemoryLine("MemAvailable:");
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0) {
    facts.shared = Bytes(static_cast<int64_t>(shared.f_blocks * shared.f_frsize));
    facts.shared_available = Bytes(static_cast<int64_t>(shared.f_bavail * shared.f_frsize));
  }
  facts.open_files = Limit(RLIMIT_NOFILE);
  facts.locked_bytes = Limit(RLIMIT_MEMLOCK);
  facts.processes = Limit(RLIMIT_NPROC);
  facts.ports = LookAtPorts();
  facts.disk.folder = folder;
  facts.disk.status = Measure(facts.disk);
  return facts;
}

}  // namespace lynx::cli

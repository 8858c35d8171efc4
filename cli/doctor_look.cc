// Looks at this machine. See doctor.h.
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/doctor.h"
#include "common/clock.h"
#include "common/version.h"
#include "node/fd.h"

namespace lynx {
namespace {

constexpr size_t kBlock = 1 << 20, kBlocks = 64;

int64_t Limit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(limit.rlim_cur);
}

// Of /proc/meminfo; 0 where there is no such line.
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

int CoresOf() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
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

// Whether another process listens there.
bool IsTaken(int port) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return false;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 && errno == EADDRINUSE;
}

absl::Status Failed(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " in ", path));
}

// The file has no name any more as soon as it is open, so that nothing of it stays.
absl::Status Measure(DiskFacts& disk) {
  struct statvfs space{};
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

MachineFacts LookAtMachine(const std::string& folder) {
  MachineFacts facts{.version = kVersion, .cores = CoresOf(), .gpus = Gpus()};
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = absl::StrCat(name.sysname, " ", name.release, " ", name.machine);
  std::error_code error;
  facts.nvidia_driver = std::filesystem::exists("/proc/driver/nvidia/version", error);
  facts.memory = MemoryLine("MemTotal:");
  facts.memory_available = MemoryLine("MemAvailable:");
  struct statvfs shared{};
  if (::statvfs("/dev/shm", &shared) == 0) {
    facts.shared = Bytes(static_cast<int64_t>(shared.f_blocks * shared.f_frsize));
    facts.shared_available = Bytes(static_cast<int64_t>(shared.f_bavail * shared.f_frsize));
  }
  facts.open_files = Limit(RLIMIT_NOFILE);
  facts.locked_bytes = Limit(RLIMIT_MEMLOCK);
  facts.processes = Limit(RLIMIT_NPROC);
  for (const auto& [port, purpose] : {std::pair(7470, "lynx-server"), {7471, "lynx-server's metrics"}, {7472, "lynx-server's live page"}}) {
    facts.ports.push_back({.port = port, .purpose = purpose, .taken = IsTaken(port)});
  }
  facts.disk.folder = folder;
  facts.disk.status = Measure(facts.disk);
  return facts;
}

}  // namespace lynx

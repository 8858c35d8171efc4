#include "bench/scale/fleet_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <new>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "node/daemon.h"

namespace lynx::scale {
namespace {

constexpr size_t kMaxValues = 1 << 20;
constexpr std::chrono::milliseconds kEvery{2};
constexpr int kRarely = 10;  // one of this number of passes also reads the values that take longer to read

// Values that one process writes and another process reads; each read takes the values that have come since the last read.
struct Log {
  std::atomic<size_t> written{0};
  std::array<double, kMaxValues> values;

  void Add(const std::vector<double>& more) {
    for (const double value : more) {
      const size_t at = written.load(std::memory_order_relaxed);
      LYNX_CHECK(at < kMaxValues);
      values[at] = value;
      written.store(at + 1, std::memory_order_release);
    }
  }
  std::vector<double> Take(size_t& read) const {
    const size_t end = written.load(std::memory_order_acquire);
    std::vector<double> taken(values.begin() + static_cast<std::ptrdiff_t>(read),
                              values.begin() + static_cast<std::ptrdiff_t>(end));
    read = end;
    std::sort(taken.begin(), taken.end());
    return taken;
  }
};

}  // namespace

struct FleetProcess::Shared {
  std::atomic<int> attached{0};
  std::atomic<int64_t> told{0}, running{0};
  Log intervals, answers;
  size_t intervals_read = 0, answers_read = 0;  // by the parent
  std::array<char, 4096> ended{};
};

FleetProcess::FleetProcess(const FleetOptions& options, int nice) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  LYNX_CHECK(memory != MAP_FAILED);
  shared_ = new (memory) Shared;
  pid_ = ::fork();
  LYNX_CHECK(pid_ >= 0);
  if (pid_ == 0) Main(options, nice);
}

FleetProcess::~FleetProcess() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::munmap(shared_, sizeof(Shared));
}

void FleetProcess::Main(const FleetOptions& options, int nice) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  LYNX_CHECK(::setpriority(PRIO_PROCESS, 0, nice) == 0);
  // With autogroups, Linux shares the processor between sessions, and a nice value counts only within its session. So this
  // process makes its own session and sets the nice value of the autogroup.
  LYNX_CHECK(::setsid() >= 0);
  std::ofstream("/proc/self/autogroup") << nice;
  StopWatchingLockOrder();
  Fleet fleet(options);
  for (int64_t i = 0;; ++i) {
    std::this_thread::sleep_for(kEvery);
    shared_->told = fleet.told();
    shared_->running = fleet.running();
    if (i % kRarely != 0) continue;
    shared_->attached = fleet.attached();
    shared_->intervals.Add(fleet.intervals().Take());
    shared_->answers.Add(fleet.answers().Take());
    std::vector<std::pair<int64_t, std::string>> ended;
    for (const auto& [reason, count] : fleet.ended()) ended.emplace_back(count, reason);
    std::sort(ended.rbegin(), ended.rend());
    std::string text;
    for (const auto& [count, reason] : ended) absl::StrAppend(&text, "\n", count, " streams: ", reason);
    std::strncpy(shared_->ended.data(), text.c_str(), shared_->ended.size() - 1);
  }
}

int FleetProcess::attached() const { return shared_->attached; }
int64_t FleetProcess::told() const { return shared_->told; }
int64_t FleetProcess::running() const { return shared_->running; }
std::vector<double> FleetProcess::TakeIntervals() { return shared_->intervals.Take(shared_->intervals_read); }
std::vector<double> FleetProcess::TakeAnswers() { return shared_->answers.Take(shared_->answers_read); }
std::string FleetProcess::Ended() const { return shared_->ended.data(); }

}  // namespace lynx::scale

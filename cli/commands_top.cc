// top: the cluster, again and again.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/render.h"
#include "cli/top_screen.h"
#include "common/clock.h"
#include "common/status.h"

namespace lynx {
namespace {

constexpr int32_t kMostJobs = 200;
constexpr size_t kMostCurves = 30;  // of the first that train
constexpr double kLongestCall = 2;  // seconds of a later look's: keys wait for it; more where the first took long

volatile std::sig_atomic_t stopped = 0;
void OnSignal(int) { stopped = 1; }

bool SpeaksUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return absl::StrContains(absl::AsciiStrToUpper(value), "UTF");
  }
  return false;
}

absl::StatusOr<TopView> Look(Client& client) {
  TopView view{.server = client.server().address, .now = RealClock().Wall()};
  LYNX_ASSIGN_OR_RETURN(view.nodes, client.Nodes());
  // Those that have devices first: however many wait, they are all there.
  v1::ListJobsRequest active, waiting;
  for (const v1::JobState state : {v1::JOB_STATE_PLANNING, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING}) active.add_states(state);
  waiting.add_states(v1::JOB_STATE_QUEUED);
  for (v1::ListJobsRequest* request : {&active, &waiting}) {
    request->set_limit(kMostJobs);
    LYNX_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client.List(*request));
    view.jobs.insert(view.jobs.end(), jobs.jobs().begin(), jobs.jobs().end());
    (request == &active ? view.more_active : view.more_waiting) = jobs.more();
  }
  view.curves.resize(view.jobs.size());
  size_t asked = 0;
  for (size_t i = 0; i < view.jobs.size() && asked < kMostCurves; ++i) {
    if (view.jobs[i].state() != v1::JOB_STATE_RUNNING) continue;
    ++asked;
    v1::GetJobRequest request;
    request.set_job_id(view.jobs[i].id());
    request.set_include_curves(true);
    const auto job = client.GetAll(request);
    if (job.ok()) view.curves[i] = job->curves();  // else it has been forgotten meanwhile
  }
  LYNX_ASSIGN_OR_RETURN(const v1::ListQueuesResponse queues, client.Queues());
  view.queues.assign(queues.queues().begin(), queues.queues().end());
  return view;
}

// The terminal while it is drawn on: its own screen, no cursor, keys without Enter. As it was before, at the end.
class Screen {
 public:
  Screen() {
    if (tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      changed_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    std::fputs("\033[?1049h\033[?25l", stdout);
  }
  ~Screen() {
    std::fputs("\033[?25h\033[?1049l", stdout);
    std::fflush(stdout);
    if (changed_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Draw(const TopView& view) const {
    TopStyle style{.color = StyleOf(STDOUT_FILENO).color, .unicode = SpeaksUtf8()};
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      style.width = size.ws_col;
      style.height = size.ws_row;
    }
    std::string text = TopScreen(view, style);
    if (!text.empty()) text.pop_back();  // a newline on the last line would scroll
    std::string drawn = "\033[H";
    for (const char c : text) drawn += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
    std::fputs((drawn + "\033[K\033[J").c_str(), stdout);
    std::fflush(stdout);
  }

  // False: somebody pressed q, or the program is to end.
  bool Wait(double seconds) const {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = poll(&input, 1, static_cast<int>(std::lround(seconds * 1000)));
    char key = '\0';
    const bool quits = ready > 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q');
    return !quits && stopped == 0;
  }

 private:
  termios before_{};
  bool changed_ = false;
};

}  // namespace

int Top(const GlobalOptions& global, const TopOptions& options) {
  if (const absl::Status known = CheckOutput(global.output, {OutputFormat::kTable, OutputFormat::kWide}); !known.ok()) {
    return Fail(Annotate(known, "top is for people; 'lynxctl list' and 'lynxctl nodes' are for programs"));
  }
  Client first = Connect(global);
  const Nanos begin = RealClock().Monotonic();
  absl::StatusOr<TopView> view = Look(first);
  if (!view.ok()) return Fail(view.status());
  const double taken = Seconds(RealClock().Monotonic() - begin);
  if (options.once || isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0) {
    constexpr size_t kWide = 1000;
    std::fputs(TopScreen(*view, {.width = kWide, .color = false, .unicode = SpeaksUtf8()}).c_str(), stdout);
    return kExitOk;
  }
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
  GlobalOptions brief = global;
  brief.timeout_seconds = std::min(global.timeout_seconds, std::max(kLongestCall, 2 * taken));
  Client client = Connect(brief);
  const Screen screen;
  do {
    screen.Draw(*view);
    if (!screen.Wait(options.interval_seconds)) break;
    absl::StatusOr<TopView> next = Look(client);
    if (next.ok()) {
      view = std::move(next);
    } else {
      view->problem = std::string(next.status().message());
    }
  } while (stopped == 0);
  return stopped == 0 ? kExitOk : kExitInterrupted;
}

}  // namespace lynx

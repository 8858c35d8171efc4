// top: shows the cluster again and again.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "cli/output/exit_code.h"
#include "cli/output/narrow.h"
#include "cli/output/render.h"
#include "cli/output/top_screen.h"
#include "cli/verbs/commands.h"
#include "common/clock.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

constexpr int32_t kMaxJobs = 200;
constexpr size_t kMaxCurves = 30;  // curves are shown for at most this many jobs that train
// Time limit in seconds for each later call, because a pressed key has no effect before the call ends. The limit is longer if
// the first call took long.
constexpr double kMaxCall = 2;

// The requests of signals. The loop handles them when the current call has ended.
volatile std::sig_atomic_t ended = 0, suspended = 0, resumed = 0;
void OnEnd(int) { ended = 1; }
void OnSuspend(int) { suspended = 1; }
void OnResume(int) { resumed = 1; }

// Installs a handler without SA_RESTART, so that poll returns when the signal comes.
void Handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

void HandleSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) Handle(signal, OnEnd);
  Handle(SIGTSTP, OnSuspend);
  Handle(SIGCONT, OnResume);
}

bool SpeaksUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return absl::StrContains(absl::AsciiStrToUpper(value), "UTF");
  }
  return false;
}

absl::StatusOr<TopView> Look(Client& client) {
  TopView view{.now = RealClock().Wall()};
  LYNX_ASSIGN_OR_RETURN(view.nodes, client.Nodes());
  view.server = client.present();
  // Jobs that are planned, started or trained at present have a request of their own and come first. So they are shown, up to
  // kMaxJobs, however many jobs wait.
  v1::ListJobsRequest active, waiting;
  for (const v1::JobState state : {v1::JOB_STATE_PLANNING, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING})
    active.add_states(state);
  waiting.add_states(v1::JOB_STATE_QUEUED);
  for (v1::ListJobsRequest* request : {&active, &waiting}) {
    request->set_limit(kMaxJobs);
    LYNX_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client.List(*request));
    view.jobs.insert(view.jobs.end(), jobs.jobs().begin(), jobs.jobs().end());
    (request == &active ? view.more_active : view.more_waiting) = jobs.more();
  }
  view.curves.resize(view.jobs.size());
  size_t asked = 0;
  for (size_t i = 0; i < view.jobs.size() && asked < kMaxCurves; ++i) {
    if (view.jobs[i].state() != v1::JOB_STATE_RUNNING) continue;
    ++asked;
    v1::GetJobRequest request;
    request.set_job_id(view.jobs[i].id());
    request.set_include_curves(true);
    const auto job = client.GetAll(request);
    if (job.ok()) view.curves[i] = job->curves();  // on an error, such as a forgotten job, there is no curve
  }
  LYNX_ASSIGN_OR_RETURN(const v1::ListQueuesResponse queues, client.Queues());
  view.queues.assign(queues.queues().begin(), queues.queues().end());
  return view;
}

// The terminal while the program draws on it: a screen of its own, no cursor, and keys that work without Enter. At the end, and
// while the program is suspended, the terminal is as it was before.
class Screen {
 public:
  Screen() { Enter(); }
  // Restores the terminal. Ignores the signal SIGTTOU, which would stop the program if a shell has put the program into the
  // background.
  ~Screen() {
    Handle(SIGTTOU, SIG_IGN);
    Leave();
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static bool IsToFollowShell() { return suspended != 0 || resumed != 0; }
  // Follows a shell that suspends and continues the program. If suspension was requested, restores the terminal and stops
  // until the shell continues the program. The program may also have been stopped by a signal that it cannot handle. The
  // terminal is drawn on again only when the program is in the foreground, because otherwise another program uses the
  // terminal. While the program waits in the background, it checks `ended`, so that it can be ended there.
  void FollowShell() {
    constexpr int kLookEvery = 100;  // milliseconds
    while (ended == 0 && IsToFollowShell()) {
      if (suspended != 0) {
        suspended = 0;
        Leave();
        Handle(SIGTSTP, SIG_DFL);
        raise(SIGTSTP);
        Handle(SIGTSTP, OnSuspend);
        resumed = 1;
      } else if (const pid_t foreground = tcgetpgrp(STDIN_FILENO); foreground > 0 && foreground != getpgrp()) {
        poll(nullptr, 0, kLookEvery);
      } else {
        resumed = 0;
        Enter();
      }
    }
  }

  void Draw(const TopView& view) const {
    TopStyle style{.color = StyleOf(STDOUT_FILENO).color, .unicode = SpeaksUtf8()};
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      style.width = size.ws_col;
      style.height = size.ws_row;
    }
    std::string text = TopScreen(view, style);
    if (!text.empty()) text.pop_back();  // a newline on the last line would scroll the screen
    std::string drawn = "\033[H";
    for (const char c : text) drawn += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
    std::fputs((drawn + "\033[K\033[J").c_str(), stdout);
    std::fflush(stdout);
  }

  // Waits for a key, at most `seconds`. False: somebody pressed q, the input has ended, or the program should end.
  bool Wait(double seconds) const {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = poll(&input, 1, static_cast<int>(std::lround(seconds * 1000)));
    if (ready <= 0) return ended == 0;
    char key = '\0';
    const ssize_t got = read(STDIN_FILENO, &key, 1);
    const bool gone = got == 0 || (got < 0 && errno != EINTR);
    return !gone && key != 'q' && key != 'Q' && ended == 0;
  }

 private:
  void Enter() {
    // Saves the terminal's settings, unless they are saved already. They are saved already if the program was stopped before it
    // restored them.
    if (changed_ || tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      changed_ = Set(raw);
    }
    std::fputs("\033[?1049h\033[?25l", stdout);
    entered_ = true;
  }

  // Changes the terminal's settings. In the background this call stops the program until the program is in the foreground
  // again. Then the call must be repeated.
  static bool Set(const termios& state) {
    int set = 0;
    do {
      set = tcsetattr(STDIN_FILENO, TCSANOW, &state);
    } while (set != 0 && errno == EINTR && ended == 0);
    return set == 0;
  }

  void Leave() {
    if (entered_) std::fputs("\033[?25h\033[?1049l", stdout);
    entered_ = false;
    std::fflush(stdout);
    if (changed_) Set(before_);
    changed_ = false;
  }

  termios before_{};
  bool changed_ = false, entered_ = false;
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
  if (options.once || !IsTerminal(STDOUT_FILENO) || isatty(STDIN_FILENO) == 0) {
    constexpr size_t kWide = 1000;  // for files and pipes
    std::fputs(
        TopScreen(*view, {.width = TerminalWidth(STDOUT_FILENO).value_or(kWide), .color = false, .unicode = SpeaksUtf8()})
            .c_str(),
        stdout);
    return kExitOk;
  }
  HandleSignals();
  GlobalOptions brief = global;
  brief.timeout_seconds = std::min(global.timeout_seconds, std::max(kMaxCall, 2 * taken));
  Client client = Connect(brief);
  Screen screen;
  while (ended == 0) {
    screen.FollowShell();
    if (ended != 0) break;
    screen.Draw(*view);
    if (!screen.Wait(options.interval_seconds)) break;
    if (Screen::IsToFollowShell()) continue;
    absl::StatusOr<TopView> next = Look(client);
    if (next.ok()) {
      view = std::move(next);
    } else {
      view->problem = std::string(next.status().message());
    }
  }
  return ended == 0 ? kExitOk : kExitInterrupted;
}

}  // namespace lynx::cli

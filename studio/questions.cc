#include "studio/questions.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "node/command.h"
#include "node/daemon.h"

namespace lynx {
namespace {

constexpr char kProgram[] = "lynx-studio";
constexpr char kNothing[] = "{}";  // what is kept of an answer that has no plan

absl::Status Stale() { return absl::CancelledError("a newer question has come"); }

// Calls `closed` on a thread of its own when the other side closes the connection, which must stay open on this side meanwhile.
class ConnectionWatch {
 public:
  ConnectionWatch(int socket, std::function<void()> closed)
      : thread_([this, socket, closed = std::move(closed)] {
          pollfd fds[] = {{.fd = socket, .events = POLLRDHUP, .revents = 0},
                          {.fd = done_.fd(), .events = POLLIN, .revents = 0}};
          while (::poll(fds, 2, -1) < 0 && errno == EINTR) {}
          if (fds[0].revents != 0 && fds[1].revents == 0) closed();
        }) {}
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;
  ~ConnectionWatch() {
    done_.Raise();
    thread_.join();
  }

 private:
  WakeEvent done_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<StudioAnswerer> AnswererInProcess(const StudioLimits& limits) {
  const std::string program = BesideThisBinary(kProgram);
  if (::access(program.c_str(), X_OK) != 0) {
    const bool there = ::access(program.c_str(), F_OK) == 0;
    const std::string text = absl::StrCat("the studio's planner ", program, there ? " may not be executed" : " is not there",
                                          ": it is built with the target ", kProgram, " and belongs beside this program");
    return there ? absl::PermissionDeniedError(text) : absl::NotFoundError(text);
  }
  std::vector<std::string> command = {program, "--parent", absl::StrCat(::getpid()), "--memory",
                                      absl::StrCat(limits.memory.value)};
  if (limits.one_thread) command.push_back("--one-thread");
  if (limits.background) command.push_back("--background");
  return StudioAnswerer(
      [command, time = limits.time](const std::string& question, const WakeEvent& cancel) -> absl::StatusOr<std::string> {
        CommandResult result = std::move(RunCommands({command}, time, cancel, question).front());
        if (!result.status.ok()) return result.status;
        return std::move(result.output);
      });
}

StudioQuestions::StudioQuestions(StudioAnswerer answerer, StudioLimits limits)
    : answerer_(std::move(answerer)), limits_(limits) {}

void StudioQuestions::Cancel(std::shared_ptr<Question>& question) {
  if (question == nullptr) return;
  question->stale = true;
  question->cancel.Raise();
  question = nullptr;
  changed_.notify_all();
}

// Clients with a question are never forgotten, so there can be a few more than kMaxClients.
void StudioQuestions::ForgetOldClients() {
  while (clients_.size() > kMaxClients) {
    auto oldest = clients_.end();
    for (auto it = clients_.begin(); it != clients_.end(); ++it) {
      const auto& present = it->second.present;
      const bool asks = std::any_of(present.begin(), present.end(), [](const auto& question) { return question != nullptr; });
      if (!asks && (oldest == clients_.end() || it->second.used < oldest->second.used)) oldest = it;
    }
    if (oldest == clients_.end()) return;
    clients_.erase(oldest);
  }
}

void StudioQuestions::Abandon(const std::string& client, StudioAsk ask, std::shared_ptr<Question> question) {
  const std::unique_lock lock(mutex_);
  if (const auto asker = clients_.find(client); asker != clients_.end()) {
    std::shared_ptr<Question>& present = asker->second.present[static_cast<size_t>(ask)];
    if (present == question) present = nullptr;
  }
  Cancel(question);
}

absl::Status StudioQuestions::Begin(const std::string& client, StudioAsk ask, int64_t sequence,
                                    const std::shared_ptr<Question>& question, std::string& kept) {
  std::unique_lock lock(mutex_);
  if (stopped_ || question->stale) return Stale();
  Client& asker = clients_[client];
  asker.used = ++asked_;
  const auto index = static_cast<size_t>(ask);
  if (sequence <= asker.newest[index]) return Stale();
  asker.newest[index] = sequence;
  Cancel(asker.present[index]);
  if (ask == StudioAsk::kPlan) Cancel(asker.present[static_cast<size_t>(StudioAsk::kMore)]);
  asker.present[index] = question;
  ForgetOldClients();
  if (running_ >= limits_.at_once && waiting_ >= limits_.waiting) {
    asker.present[index] = nullptr;
    return absl::UnavailableError("too many questions at once; ask again soon");
  }
  ++waiting_;
  changed_.wait(lock, [&] { return question->stale || running_ < limits_.at_once; });
  --waiting_;
  if (question->stale) return Stale();
  ++running_;
  kept = clients_[client].kept;
  return absl::OkStatus();
}

absl::StatusOr<std::string> StudioQuestions::Ask(const std::string& client, StudioAsk ask, int64_t sequence,
                                                 const MakeQuestion& make, int socket) {
  const auto question = std::make_shared<Question>();
  std::optional<ConnectionWatch> watch;
  if (socket >= 0) watch.emplace(socket, [&] { Abandon(client, ask, question); });
  std::string kept;
  LYNX_RETURN_IF_ERROR(Begin(client, ask, sequence, question, kept));
  const absl::StatusOr<std::string> text = make(kept);
  absl::StatusOr<std::string> answer = text.ok() ? answerer_(*text, question->cancel) : text;
  const std::unique_lock lock(mutex_);
  --running_;
  changed_.notify_all();
  if (question->stale) return Stale();
  Client& asker = clients_.at(client);  // a client with a question is not forgotten
  asker.present[static_cast<size_t>(ask)] = nullptr;
  LYNX_RETURN_IF_ERROR(answer.status());
  const size_t end = answer->find('\n');
  if (end == std::string::npos) return absl::InternalError("the answer has no second line");
  if (ask == StudioAsk::kPlan && answer->compare(0, end, kNothing) != 0) asker.kept = answer->substr(0, end);
  return answer->substr(end + 1);
}

absl::StatusOr<std::string> StudioQuestions::AskAlone(const MakeQuestion& make, int socket) {
  std::string client = " ";  // pages' names have no blanks
  {
    const std::unique_lock lock(mutex_);
    absl::StrAppend(&client, ++alone_);
  }
  return Ask(client, StudioAsk::kExport, 0, make, socket);
}

absl::StatusOr<std::string> StudioQuestions::AskWithoutWaiting(const std::string& question) {
  {
    const std::unique_lock lock(mutex_);
    if (stopped_) return Stale();
  }
  LYNX_ASSIGN_OR_RETURN(const std::string answer, answerer_(question, stopping_));
  const size_t end = answer.find('\n');
  if (end == std::string::npos) return absl::InternalError("the answer has no second line");
  return answer.substr(end + 1);
}

void StudioQuestions::Stop() {
  stopping_.Raise();
  const std::unique_lock lock(mutex_);
  stopped_ = true;
  for (auto& [name, client] : clients_) {
    for (std::shared_ptr<Question>& question : client.present) Cancel(question);
  }
}

}  // namespace lynx

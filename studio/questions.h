// StudioQuestions: gets the answers to the questions of the studio's pages. A child process answers each question
// (AnswererInProcess). A page's newer question replaces its older one.
//
// A page (a "client") numbers its questions. Of each kind (StudioAsk), only the newest question counts: an older one that waits
// or runs is stopped, and its answer says that it is stale. A new question of the kind "plan" also stops the client's question
// of the kind "more", which was about the earlier state of the page's fields. So a person who moves a slider never waits for an
// answer about an earlier position of the slider.
//
// A question also ends when nobody waits for its answer any more: when the client closes the connection that brought it.
//
// At most `at_once` questions run at a time, and at most `waiting` wait for their turn. Thread-safe; the calls block until
// their answer is there.
#ifndef LYNX_STUDIO_QUESTIONS_H_
#define LYNX_STUDIO_QUESTIONS_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "common/enum_names.h"
#include "common/units.h"
#include "node/wake.h"

namespace lynx {

enum class StudioAsk : uint8_t { kChoices, kPlan, kMore, kExport };
template <>
inline constexpr auto kEnumNames<StudioAsk> = EnumTable("choices", "plan", "more", "export");
inline constexpr int kStudioAskCount = 4;

struct StudioLimits {
  size_t at_once = 4;
  size_t waiting = 8;
  Nanos time{300'000'000'000};     // a question that takes longer is stopped, and answered with an error
  Bytes memory{int64_t{8} << 30};  // of one question
  bool one_thread = false;         // a question uses one core
  // Questions run with the lowest priority, and are the first that the kernel ends when the machine lacks memory.
  bool background = false;
};

// Has one question answered: the text that AnswerQuestion (studio/answers.h) gets and returns. Cancelled: `cancel` was raised.
using StudioAnswerer = std::function<absl::StatusOr<std::string>(const std::string& question, const WakeEvent& cancel)>;
// For each question, starts the program lynx-studio, which must be in the folder of this program. NotFound or PermissionDenied:
// there is no such program; the text says where it belongs.
absl::StatusOr<StudioAnswerer> AnswererInProcess(const StudioLimits& limits);

// Makes the question from what the service keeps of the client's last plan ("{}" if nothing).
using MakeQuestion = std::function<absl::StatusOr<std::string>(const std::string& kept)>;

class StudioQuestions {
 public:
  explicit StudioQuestions(StudioAnswerer answerer, StudioLimits limits = {});

  // Returns what the answerer returned after its first line; the first line of the last plan is kept for the client. `socket`:
  // the connection that the answer goes to; -1: it is not watched. Cancelled: the question is stale, or the client has closed
  // the connection. Unavailable: too many questions wait. Other errors are those of `make` and of the answerer.
  absl::StatusOr<std::string> Ask(const std::string& client, StudioAsk ask, int64_t sequence, const MakeQuestion& make,
                                  int socket = -1);
  // The same for a question that is not a page's newest, such as an export: no other question makes it stale.
  absl::StatusOr<std::string> AskAlone(const MakeQuestion& make, int socket = -1);
  // The same for a question that takes little time: it does not wait for its turn. Only Stop stops it.
  absl::StatusOr<std::string> AskWithoutWaiting(const std::string& question);
  // Stops every question that runs or waits, and answers all later ones as stale.
  void Stop();

  static constexpr size_t kMaxClients = 64;

 private:
  // A question that waits or runs.
  struct Question {
    WakeEvent cancel;
    bool stale = false;
  };
  struct Client {
    // The index is the StudioAsk.
    std::array<int64_t, kStudioAskCount> newest = {-1, -1, -1, -1};
    std::array<std::shared_ptr<Question>, kStudioAskCount> present;
    std::string kept = "{}";
    uint64_t used = 0;  // number of the client's latest question among those of all clients
  };

  // Registers the question and waits for its turn. If the result is OK, the question counts as running.
  absl::Status Begin(const std::string& client, StudioAsk ask, int64_t sequence, const std::shared_ptr<Question>& question,
                     std::string& kept);
  void Cancel(std::shared_ptr<Question>& question);
  // Cancels and removes a question whose client has closed the connection.
  void Abandon(const std::string& client, StudioAsk ask, std::shared_ptr<Question> question);
  void ForgetOldClients();

  const StudioAnswerer answerer_;
  const StudioLimits limits_;

  WakeEvent stopping_;  // raised by Stop

  std::mutex mutex_;
  std::condition_variable changed_;  // a question has ended, or is stale
  // guarded by mutex_:
  std::map<std::string, Client> clients_;
  size_t running_ = 0, waiting_ = 0;
  uint64_t asked_ = 0, alone_ = 0;
  bool stopped_ = false;
};

}  // namespace lynx

#endif  // LYNX_STUDIO_QUESTIONS_H_

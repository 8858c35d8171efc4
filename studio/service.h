// StudioService: the studio's page, and the addresses at which the page asks. lynxctl serves it on loopback, and lynx-server as
// a tab of its live page. The page asks relative to its own address, so a program may serve all of it below a folder.
//
//     GET  /               the page, with the view of a plan in the place of {{plan_view}}; its files are at /studio.js, ...
//     GET  /plan.css, /plan.js     style and scripts that show a plan (planner/report/page_text.h)
//     GET  /api/choices    what can be chosen, and the state to begin with; with a cluster that runs also
//                          "cluster": {"machine", "note"} (StudioCluster)
//     POST /api/plan       {"state", "sequence", "client", "layout": "same"|"any"}
//     POST /api/more       {"state", "sequence", "client"}
//     POST /api/export     {"state", "format": "job"|"megatron"|"deepspeed"|"torchtitan", "sequence", "client"}
//
// studio/state.h has the keys of a state, and studio/answers.h those of the answers. "sequence" and "client" may be left out
// with /api/export. An answer has the question's sequence, and {"stale": true} if a newer question of the client and kind has
// come or the client has closed the connection (studio/questions.h), or {"error": {...}}, or {"infeasible": {...}}. All of
// these have status 200; only what no page of the studio sends has another: 400 (not JSON, or unknown keys), 403 (asked by
// another web page), 404, 405, 415 (another content type), 421 (another host), and 503 with Retry-After if too many questions
// wait.
//
// The answer to "plan" that nothing fits comes without the smallest change that fits, which takes much longer to find; the
// answer to "more" has it.
//
// "layout": "same" plans in the layout of the client's last answer, which takes a few milliseconds, and searches all layouts
// only if that layout does not fit the state.
//
// Thread-safe.
#ifndef LYNX_STUDIO_SERVICE_H_
#define LYNX_STUDIO_SERVICE_H_

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node/http_endpoint.h"
#include "studio/questions.h"

namespace lynx {

inline constexpr size_t kMaxStudioBody = 1 << 20;

// A cluster that runs, as the program that serves the page knows it.
struct StudioCluster {
  std::string machine;          // its name among `machines`; "" = no plan can be made for it
  std::string machines = "[]";  // machines beside those compiled in, as a JSON list of {"name", "title", "text"}
  std::string note;             // for people, why it cannot be planned for, or what is left out; "" = nothing
};

struct StudioOptions {
  std::set<std::string> hosts;  // names and numeric addresses by which the page is reached, in small letters, without ports
  // The question {"ask": "choices"} with the files or machines to begin with (studio/answers.h), as JSON.
  std::string choices = "{\"ask\":\"choices\"}";
  // The cluster that the program serves. It is asked for each question. May be empty: there is none, and the page has no link
  // to the program's page about it.
  std::function<absl::StatusOr<StudioCluster>()> cluster = {};
};

class StudioService {
 public:
  StudioService(StudioOptions options, StudioAnswerer answerer, StudioLimits limits = {});

  HttpReply Answer(const HttpRequest& request);
  // Stops all questions; then nothing keeps the endpoint's threads.
  void Stop() { questions_.Stop(); }

 private:
  HttpReply Route(const HttpRequest& request);
  HttpReply File(const std::string& path) const;
  HttpReply Choices();
  HttpReply Post(const HttpRequest& request, StudioAsk ask);

  const StudioOptions options_;
  StudioQuestions questions_;
  std::mutex choices_mutex_;      // held while the answer is made; other threads wait for it
  std::string choices_;           // guarded by choices_mutex_; the answer to choices_question_; "" = not kept
  std::string choices_question_;  // guarded by choices_mutex_
};

}  // namespace lynx

#endif  // LYNX_STUDIO_SERVICE_H_

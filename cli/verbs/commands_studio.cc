// studio: serves the page on which people plan by looking. See commands.h.
#include <poll.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/output/exit_code.h"
#include "cli/output/waiting_line.h"
#include "cli/spec/job_file.h"
#include "cli/verbs/commands.h"
#include "common/status.h"
#include "node/http_endpoint.h"
#include "node/process.h"
#include "node/wake.h"
#include "studio/service.h"

namespace lynx::cli {
namespace {

constexpr char kOpener[] = "/usr/bin/xdg-open";
constexpr int kOpenerLookMillis = 500;  // how often the opener is looked at until it ends

absl::StatusOr<nlohmann::json> FileJson(const std::string& what, const std::string& path) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return Annotate(text.status(), what);
  std::error_code error;
  const std::string folder = std::filesystem::absolute(path, error).parent_path().string();
  return nlohmann::json{{"text", *std::move(text)}, {"name", path}, {"folder", folder}};
}

// The question for what the page offers and begins with (studio/answers.h).
absl::StatusOr<std::string> ChoicesQuestion(const StudioOptions& options) {
  nlohmann::json question{{"ask", "choices"}};
  if (!options.file.empty()) {
    LYNX_ASSIGN_OR_RETURN(question["job"], FileJson("job file", options.file));
  }
  if (!options.cluster.empty()) {
    LYNX_ASSIGN_OR_RETURN(question["cluster"], FileJson("cluster file", options.cluster));
  }
  return question.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Asks the question once, so that a mistake in a file is told here and not on the page.
absl::Status CheckChoices(const StudioAnswerer& answerer, const std::string& question) {
  const WakeEvent never;
  LYNX_ASSIGN_OR_RETURN(const std::string answer, answerer(question, never));
  const std::vector<std::string> parts = absl::StrSplit(answer, absl::MaxSplits('\n', 1));
  const auto json = nlohmann::json::parse(parts.back(), nullptr, false);
  if (json.is_object() && json.contains("state")) return absl::OkStatus();
  return absl::InvalidArgumentError(json.is_object() && json.contains("error") ? json["error"].value("text", "") : answer);
}

absl::StatusOr<std::unique_ptr<HttpEndpoint>> Listen(const StudioOptions& options, const HttpEndpoint::Answer& answer) {
  const HttpLimits limits{.max_body = kMaxStudioBody};
  const auto start = [&](int port) { return HttpEndpoint::Start(absl::StrCat("127.0.0.1:", port), answer, limits); };
  absl::StatusOr<std::unique_ptr<HttpEndpoint>> endpoint = start(options.port > 0 ? options.port : kStudioPort);
  if (!endpoint.ok() && options.port == 0) endpoint = start(0);
  if (!endpoint.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(options.port > 0 ? absl::StrCat("--port ", options.port) : "127.0.0.1",
                                                      ": ", std::string(endpoint.status().message()),
                                                      "; give another port, or none"));
  }
  return endpoint;
}

}  // namespace

int Studio(const StudioOptions& options) {
  StopSignals signals;
  const absl::StatusOr<StudioAnswerer> answerer = AnswererInProcess(StudioLimits());
  if (!answerer.ok()) return Fail(answerer.status());
  const absl::StatusOr<std::string> question = ChoicesQuestion(options);
  if (!question.ok()) return Fail(question.status());
  if (const absl::Status checked = CheckChoices(*answerer, *question); !checked.ok()) return Fail(checked);
  StudioService service({.hosts = {"127.0.0.1", "localhost"}, .choices = *question}, *answerer);
  const auto endpoint = Listen(options, [&](const HttpRequest& request) { return service.Answer(request); });
  if (!endpoint.ok()) return Fail(endpoint.status());
  const std::string address = absl::StrCat("http://127.0.0.1:", (*endpoint)->port(), "/");
  std::printf("the studio is at %s (Ctrl-C ends it)\n", address.c_str());
  std::fflush(stdout);
  std::optional<Child> opener;
  if (options.open) {
    absl::StatusOr<Child> started = SpawnInSession({kOpener, address}, {});
    if (started.ok()) {
      opener = *std::move(started);
    } else {
      std::fprintf(stderr, "lynxctl: --open: %s; open the address yourself\n", std::string(started.status().message()).c_str());
    }
  }
  pollfd stop{.fd = signals.fd(), .events = POLLIN, .revents = 0};
  while (!signals.Take()) {
    ::poll(&stop, 1, opener ? kOpenerLookMillis : -1);
    if (const auto ended = opener ? ReapChild(opener->pidfd) : std::nullopt; ended.has_value()) {
      if (ended->code != 0) std::fprintf(stderr, "lynxctl: --open: %s found no browser; open the address yourself\n", kOpener);
      opener.reset();
    }
  }
  service.Stop();
  return kExitOk;
}

}  // namespace lynx::cli

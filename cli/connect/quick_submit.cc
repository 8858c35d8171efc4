#include "cli/connect/quick_submit.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/connect/leader_memory.h"
#include "cli/connect/server_place.h"
#include "cli/connect/submission.h"
#include "cli/connect/unary_call.h"
#include "cli/spec/job_file.h"
#include "lynx/v1/jobs.pb.h"
#include "node/server_addresses.h"
#include "proto/convert.h"

namespace lynx::cli {
namespace {

// The limits of --timeout in all verbs.
constexpr double kLeastTimeout = 0.1, kMaxTimeout = 3600;
// Used with several servers. kSilence: if a server sends nothing for this time, the next one is called. 1 / kAttempts: the part
// of the timeout within which a server that has sent something must answer.
constexpr Nanos kSilence{250'000'000};
constexpr int64_t kAttempts = 3;

// The value of the option at `at`: "--file X" or "--file=X". Moves `at` to the option's last word. nullopt: there is no
// value, or the full program gives it a special meaning.
std::optional<std::string> ValueOf(const std::vector<std::string>& arguments, size_t& at) {
  const std::string& word = arguments[at];
  const size_t equals = word.find('=');
  std::string value;
  if (equals != std::string::npos) {
    value = word.substr(equals + 1);
  } else if (++at < arguments.size()) {
    value = arguments[at];
  }
  if (value.empty() || value.front() == '-' || (value.front() == '[' && value.back() == ']')) return std::nullopt;
  return value;
}

// The option's full name; "" if the word is not an option that is known here.
std::string NameOf(const std::string& word) {
  static const std::map<std::string, std::string> kNames = {
      {"-f", "file"},         {"--file", "file"},       {"--set", "set"}, {"--idempotency-key", "key"},
      {"--server", "server"}, {"--timeout", "timeout"}, {"-o", "output"}, {"--output", "output"}};
  const bool is_long = word.rfind("--", 0) == 0;
  const auto found = kNames.find(is_long ? word.substr(0, word.find('=')) : word);
  return found == kNames.end() ? "" : found->second;
}

// Submits at the server that leads: calls each address at most once. Returns the message of the answer; nullopt: none of them
// has accepted the job, as far as this program knows.
std::optional<std::string> CallLeader(ServerAddresses& servers, const std::string& message, Nanos timeout) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout.value);
  ServerAddresses::Next next = ServerAddresses::Next::kAtOnce;
  while (next == ServerAddresses::Next::kAtOnce) {
    const Nanos left((end - std::chrono::steady_clock::now()).count());
    const bool several = servers.several();
    const UnaryAnswer answer = CallUnary(servers.present(), "/lynx.v1.Jobs/SubmitJob", message,
                                         several ? std::min(left, timeout / kAttempts) : left, several ? kSilence : left);
    if (answer.message.has_value()) return answer.message;
    if (answer.ended && !answer.leader.has_value()) return std::nullopt;  // the leader has refused the job
    next = servers.Failed(answer.leader.value_or(""));
  }
  return std::nullopt;
}

}  // namespace

std::optional<QuickSubmit> ParseQuickSubmit(const std::vector<std::string>& arguments) {
  QuickSubmit options;
  bool verb = false;
  std::map<std::string, std::string> given;
  for (size_t at = 0; at < arguments.size(); ++at) {
    if (!verb && arguments[at] == "submit") {
      verb = true;
      continue;
    }
    const std::string name = NameOf(arguments[at]);
    const bool of_all_verbs = name == "server" || name == "timeout" || name == "output";
    if (name.empty() || (!verb && !of_all_verbs)) return std::nullopt;
    std::optional<std::string> value = ValueOf(arguments, at);
    if (!value.has_value()) return std::nullopt;
    if (name == "set") {
      options.overrides.push_back(*std::move(value));
    } else if (!given.emplace(name, *std::move(value)).second) {
      return std::nullopt;
    }
  }
  if (!verb || !given.contains("file") || (given.contains("output") && given["output"] != "table")) return std::nullopt;
  if (given.contains("timeout") && (!absl::SimpleAtod(given["timeout"], &options.timeout_seconds) ||
                                    !(options.timeout_seconds >= kLeastTimeout && options.timeout_seconds <= kMaxTimeout))) {
    return std::nullopt;
  }
  options.file = given["file"];
  options.idempotency_key = given["key"];
  options.server = given["server"];
  return options;
}

QuickSubmitted SubmitQuickly(const QuickSubmit& options) {
  const std::optional<std::string> server = PlainServer(options.server);
  if (!server.has_value()) return {};
  absl::StatusOr<ServerAddresses> servers = ServerAddresses::Parse(*server);
  if (!servers.ok() || !std::all_of(servers->all().begin(), servers->all().end(), IsCalledUnary)) return {};
  // A file that can be read only once, such as a pipe, is left to the full program. If this path read the file, the full
  // program could not read it again to explain a mistake.
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.file, error)) return {};
  const absl::StatusOr<JobSpec> spec = ReadJobFile(options.file, options.overrides);
  if (!spec.ok()) return {};
  v1::SubmitJobRequest request;
  *request.mutable_spec() = ToProto(*spec);
  request.set_idempotency_key(options.idempotency_key.empty() ? FreshKey() : options.idempotency_key);
  const auto begin = std::chrono::steady_clock::now();
  const std::string leaders_file = servers->several() ? LeadersFile() : "";
  const std::string remembered = RememberedLeader(leaders_file, servers->text());
  servers->BeginWith(remembered);
  const std::optional<std::string> answer =
      CallLeader(*servers, request.SerializeAsString(), NanosFromSeconds(options.timeout_seconds));
  v1::SubmitJobResponse response;
  if (answer.has_value() && response.ParseFromString(*answer)) {
    if (servers->present() != remembered) RememberLeader(leaders_file, servers->text(), servers->present());
    return {.text = SubmittedText(response.job().id(), response.existed()), .arguments = {}};
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  QuickSubmitted left;
  left.arguments = {"submit", absl::StrCat("--file=", options.file),
                    absl::StrCat("--idempotency-key=", request.idempotency_key()),
                    absl::StrCat("--timeout=", std::max(kLeastTimeout, options.timeout_seconds - taken.count()))};
  for (const std::string& one : options.overrides) left.arguments.push_back(absl::StrCat("--set=", one));
  if (!options.server.empty()) left.arguments.push_back(absl::StrCat("--server=", options.server));
  return left;
}

}  // namespace lynx::cli

#include "studio/service.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "planner/report/page_text.h"
#include "studio/files.h"
#include "studio/strict_json.h"

namespace lynx {
namespace {

using Json = nlohmann::json;

constexpr char kJson[] = "application/json; charset=utf-8", kHtml[] = "text/html; charset=utf-8";
constexpr char kPage[] = "studio.html";
constexpr size_t kMaxClientName = 64;
// Widths and heights of bars are styles of their elements; scripts and styles of other places are not loaded.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "base-uri "
    "'none'; form-action 'none'; frame-ancestors 'none'";

HttpReply Plain(int status, const std::string& text) { return {.status = status, .body = text + "\n"}; }

const char* TypeOf(const std::string& name) {
  if (absl::EndsWith(name, ".html")) return kHtml;
  return absl::EndsWith(name, ".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8";
}

// The path's question, and the keys that it may have.
struct Address {
  const char* path;
  StudioAsk ask;
  std::vector<std::string> keys;
};
const std::vector<Address>& Addresses() {
  static const auto* addresses =
      new std::vector<Address>{{"/api/plan", StudioAsk::kPlan, {"state", "sequence", "client", "layout"}},
                               {"/api/more", StudioAsk::kMore, {"state", "sequence", "client", "layout"}},
                               {"/api/export", StudioAsk::kExport, {"state", "sequence", "client", "format"}}};
  return *addresses;
}

// What a page sends with every question.
struct Head {
  std::string client;
  int64_t sequence = 0;
};

absl::StatusOr<Head> HeadOf(const Json& json, const Address& address) {
  if (!json.is_object()) return absl::InvalidArgumentError("the body must be a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (std::find(address.keys.begin(), address.keys.end(), key) == address.keys.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key '", key, "'; this address takes ", absl::StrJoin(address.keys, ", ")));
    }
  }
  if (!json.contains("state")) return absl::InvalidArgumentError("the key 'state' is missing");
  const Json layout = json.value("layout", Json("any"));
  if (layout != "any" && layout != "same") return absl::InvalidArgumentError("'layout' must be \"same\" or \"any\"");
  if (json.contains("format") && !json["format"].is_string()) return absl::InvalidArgumentError("'format' must be a text");
  Head head;
  const bool counted = address.ask != StudioAsk::kExport;
  if (!json.contains("client") || !json.contains("sequence")) {
    if (counted)
      return absl::InvalidArgumentError("the keys 'client' and 'sequence' are missing: they say which question is newest");
    return head;
  }
  if (!json["client"].is_string() || !json["sequence"].is_number_unsigned()) {
    return absl::InvalidArgumentError("'client' must be a text and 'sequence' a whole number from 0 on");
  }
  head = {json["client"], json["sequence"].get<int64_t>()};
  const bool good = !head.client.empty() && head.client.size() <= kMaxClientName && head.sequence >= 0 &&
                    std::all_of(head.client.begin(), head.client.end(),
                                [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-'; });
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("'client' must be 1 to ", kMaxClientName, " letters, digits and dashes, and 'sequence' below 2^63"));
  }
  return head;
}

std::string ErrorBody(const std::string& text) {
  return Json{{"error", {{"text", text}, {"field", ""}, {"file", ""}, {"line", 0}, {"column", 0}}}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

// `body`, which is a JSON object with at least one key, with the sequence as its first key.
std::string WithSequence(int64_t sequence, const std::string& body) {
  return absl::StrCat("{\"sequence\":", sequence, ",", body.substr(1));
}

// Returns the reply to a question that got no answer, because it became stale, because too many questions wait, or because the
// answerer failed. An error in the question itself is an answer.
HttpReply Unanswered(const absl::Status& status, int64_t sequence) {
  if (absl::IsCancelled(status)) return {.type = kJson, .body = WithSequence(sequence, "{\"stale\":true}\n")};
  if (absl::IsUnavailable(status)) {
    HttpReply reply = Plain(503, std::string(status.message()));
    reply.headers.emplace_back("Retry-After", "1");
    return reply;
  }
  return {.type = kJson,
          .body = WithSequence(sequence, ErrorBody(absl::StrCat("no plan was made: ", std::string(status.message()))))};
}

}  // namespace

StudioService::StudioService(StudioOptions options, StudioAnswerer answerer, StudioLimits limits)
    : options_(std::move(options)), questions_(std::move(answerer), limits) {}

HttpReply StudioService::Answer(const HttpRequest& request) {
  HttpReply reply = Route(request);
  AddPageHeaders(kPolicy, reply);
  if (request.method == "HEAD") reply.body.clear();
  return reply;
}

HttpReply StudioService::Route(const HttpRequest& request) {
  if (!options_.hosts.contains(HostName(request.host))) {
    return Plain(421, "this page is not served under the name that was asked for: use localhost or 127.0.0.1");
  }
  const auto address =
      std::find_if(Addresses().begin(), Addresses().end(), [&](const Address& known) { return known.path == request.path; });
  const bool asks = address != Addresses().end();
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (asks ? request.method != "POST" : !reads) {
    HttpReply reply = Plain(405, asks ? "send the question with POST" : "this address is only for reading");
    reply.headers.emplace_back("Allow", asks ? "POST" : "GET, HEAD");
    return reply;
  }
  if (asks) return Post(request, address->ask);
  if (request.path != "/api/choices") return File(request.path);
  if (const absl::Status own = CheckSameOrigin(request); !own.ok()) return Plain(403, std::string(own.message()));
  return Choices();
}

HttpReply StudioService::File(const std::string& path) const {
  if (path == "/plan.css") return {.type = TypeOf(path), .body = std::string(PageStyle())};
  if (path == "/plan.js") {
    return {.type = TypeOf(path),
            .body = absl::StrCat(std::string(SharedScript()), std::string(PlanViewScript()), std::string(ChartScript()))};
  }
  const std::string name = path == "/" ? kPage : path.substr(path.empty() ? 0 : 1);
  for (const EmbeddedFile& file : StudioPageFiles()) {
    if (file.name != name) continue;
    HttpReply reply{.type = TypeOf(name), .body = std::string(file.text)};
    if (name == kPage) reply.body = absl::StrReplaceAll(reply.body, {{"{{plan_view}}", std::string(PlanView())}});
    return reply;
  }
  return Plain(404, "there is no such page; the studio is at /");
}

HttpReply StudioService::Choices() {
  StudioCluster cluster;
  std::string question = options_.choices;
  if (options_.cluster) {
    absl::StatusOr<StudioCluster> got = options_.cluster();
    if (!got.ok()) return Unanswered(got.status(), 0);
    cluster = *std::move(got);
    question = absl::StrCat("{\"machines\":", cluster.machines, ",", options_.choices.substr(1));
  }
  // The same question always has the same answer.
  const std::lock_guard lock(choices_mutex_);
  if (choices_.empty() || question != choices_question_) {
    const absl::StatusOr<std::string> answer = questions_.AskWithoutWaiting(question);
    if (!answer.ok()) return Unanswered(answer.status(), 0);
    choices_ = *answer;
    choices_question_ = question;
  }
  if (!options_.cluster) return {.type = kJson, .body = choices_};
  const Json told{{"machine", cluster.machine}, {"note", cluster.note}};
  return {.type = kJson,
          .body = absl::StrCat("{\"cluster\":", told.dump(-1, ' ', false, Json::error_handler_t::replace), ",",
                               choices_.substr(1))};
}

HttpReply StudioService::Post(const HttpRequest& request, StudioAsk ask) {
  if (const absl::Status own = CheckSameOrigin(request); !own.ok()) return Plain(403, std::string(own.message()));
  const std::string type = absl::AsciiStrToLower(request.content_type.substr(0, request.content_type.find(';')));
  if (absl::StripAsciiWhitespace(type) != "application/json") return Plain(415, "the Content-Type must be application/json");
  const auto address =
      std::find_if(Addresses().begin(), Addresses().end(), [&](const Address& known) { return known.ask == ask; });
  const absl::StatusOr<Json> json = ParseStrictJson(request.body);
  if (!json.ok()) return {.status = 400, .type = kJson, .body = ErrorBody(std::string(json.status().message()))};
  const absl::StatusOr<Head> head = HeadOf(*json, *address);
  if (!head.ok()) return {.status = 400, .type = kJson, .body = ErrorBody(std::string(head.status().message()))};
  const auto make = [&](const std::string& kept) -> absl::StatusOr<std::string> {
    StudioCluster cluster;
    if (options_.cluster) {
      LYNX_ASSIGN_OR_RETURN(cluster, options_.cluster());
    }
    return absl::StrCat("{\"ask\":\"", EnumName(ask), "\",\"machines\":", cluster.machines, ",\"kept\":", kept,
                        ",\"request\":", request.body, "}");
  };
  const absl::StatusOr<std::string> answer = head->client.empty()
                                                 ? questions_.AskAlone(make, request.socket)
                                                 : questions_.Ask(head->client, ask, head->sequence, make, request.socket);
  if (!answer.ok()) return Unanswered(answer.status(), head->sequence);
  return {.type = kJson, .body = WithSequence(head->sequence, *answer)};
}

}  // namespace lynx

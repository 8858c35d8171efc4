#include "studio/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "planner/report/page_text.h"

namespace lynx {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// Answers with the question itself.
absl::StatusOr<std::string> Echo(const std::string& question, const WakeEvent&) {
  return "{\"tp\":\"2\"}\n" + Json{{"question", Json::parse(question)}}.dump() + "\n";
}

StudioService EchoService() { return StudioService({.hosts = {"localhost", "127.0.0.1"}}, Echo); }

HttpRequest Get(const std::string& path) { return {.method = "GET", .path = path, .host = "localhost:7480"}; }

HttpRequest Post(const std::string& path, const std::string& body) {
  return {.method = "POST", .path = path, .host = "localhost:7480", .content_type = "application/json", .body = body};
}

constexpr char kPlan[] = R"({"client": "c-1", "sequence": 3, "state": {"nodes": 2}})";

std::string HeaderOf(const HttpReply& reply, const std::string& name) {
  for (const auto& [key, value] : reply.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(StudioService, ServesTheViewOfPlans) {
  StudioService service = EchoService();
  const HttpReply style = service.Answer(Get("/plan.css"));
  EXPECT_EQ(style.status, 200);
  EXPECT_EQ(style.type, "text/css; charset=utf-8");
  EXPECT_EQ(style.body, PageStyle());
  const HttpReply script = service.Answer(Get("/plan.js"));
  EXPECT_THAT(script.body, HasSubstr("function mountPlan"));
  EXPECT_THAT(script.body, HasSubstr("function drawFrontier"));
  EXPECT_THAT(HeaderOf(script, "Content-Security-Policy"), HasSubstr("default-src 'none'; script-src 'self'"));
  EXPECT_EQ(HeaderOf(script, "X-Content-Type-Options"), "nosniff");
  HttpRequest head = Get("/plan.js");
  head.method = "HEAD";
  EXPECT_EQ(service.Answer(head).body, "");
}

TEST(StudioService, AsksWithWhatThePageSent) {
  StudioService service = EchoService();
  const HttpReply first = service.Answer(Post("/api/plan", kPlan));
  ASSERT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(first.type, "application/json; charset=utf-8");
  const Json answer = Json::parse(first.body);
  EXPECT_EQ(answer["sequence"], 3);
  EXPECT_EQ(answer["question"]["ask"], "plan");
  EXPECT_EQ(answer["question"]["request"], Json::parse(kPlan));
  EXPECT_EQ(answer["question"]["kept"], Json::object());
  const HttpReply second =
      service.Answer(Post("/api/plan", R"({"client": "c-1", "sequence": 4, "state": {}, "layout": "same"})"));
  EXPECT_EQ(Json::parse(second.body)["question"]["kept"], Json({{"tp", "2"}}));
  const HttpReply old = service.Answer(Post("/api/plan", kPlan));
  EXPECT_EQ(Json::parse(old.body), Json({{"sequence", 3}, {"stale", true}}));
  EXPECT_EQ(Json::parse(service.Answer(Post("/api/more", kPlan)).body)["question"]["ask"], "more");
  const HttpReply alone = service.Answer(Post("/api/export", R"({"state": {}, "format": "job"})"));
  EXPECT_EQ(Json::parse(alone.body)["question"]["request"]["format"], "job");
}

TEST(StudioService, AsksForTheChoicesOnce) {
  int asked = 0;
  StudioService service({.hosts = {"localhost"}}, [&](const std::string&, const WakeEvent&) -> absl::StatusOr<std::string> {
    if (++asked == 1) return absl::InternalError("ended");
    return "{}\n{\"state\":{}}\n";
  });
  EXPECT_THAT(service.Answer(Get("/api/choices")).body, HasSubstr("ended"));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(service.Answer(Get("/api/choices")).body, HasSubstr("state"));
  EXPECT_EQ(asked, 2);  // a fault is not kept
}

TEST(StudioService, KnowsTheClusterOfItsProgram) {
  StudioCluster cluster{.machine = "live", .machines = R"([{"name": "live", "title": "t", "text": "x"}])"};
  bool behind = false;
  StudioService service({.hosts = {"localhost"},
                         .cluster = [&]() -> absl::StatusOr<StudioCluster> {
                           if (behind) return absl::UnavailableError("the server is behind");
                           return cluster;
                         }},
                        Echo);
  const Json choices = Json::parse(service.Answer(Get("/api/choices")).body);
  EXPECT_EQ(choices["question"], Json({{"ask", "choices"}, {"machines", Json::parse(cluster.machines)}}));
  EXPECT_EQ(choices["cluster"], Json({{"machine", "live"}, {"note", ""}}));
  EXPECT_EQ(Json::parse(service.Answer(Post("/api/plan", kPlan)).body)["question"]["machines"], Json::parse(cluster.machines));
  cluster = {.note = "no nodes"};
  const Json none = Json::parse(service.Answer(Get("/api/choices")).body);
  EXPECT_EQ(none["question"]["machines"], Json::array());
  EXPECT_EQ(none["cluster"], Json({{"machine", ""}, {"note", "no nodes"}}));
  behind = true;
  const HttpReply late = service.Answer(Get("/api/choices"));
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(HeaderOf(late, "Retry-After"), "1");
  EXPECT_EQ(service.Answer(Post("/api/plan", Json{{"state", Json::object()}, {"client", "c"}, {"sequence", 9}}.dump())).status,
            503);
}

// To make the choices can start a process, so another web page may not ask for them.
TEST(StudioService, OtherPagesMayNotAskForTheChoices) {
  StudioService service = EchoService();
  HttpRequest request = Get("/api/choices");
  request.fetch_site = "cross-site";
  EXPECT_EQ(service.Answer(request).status, 403);
  request.fetch_site = "same-origin";
  EXPECT_EQ(service.Answer(request).status, 200);
}

TEST(StudioService, AnswersOnlyItsOwnNames) {
  StudioService service = EchoService();
  for (const char* host : {"evil.example", "evil.example:7480", "", "127.0.0.1.evil.example", "[::1]:7480"}) {
    HttpRequest request = Get("/api/choices");
    request.host = host;
    EXPECT_EQ(service.Answer(request).status, 421) << host;
  }
  for (const char* host : {"LOCALHOST:7480", "127.0.0.1:1", "127.0.0.1"}) {
    HttpRequest request = Get("/api/choices");
    request.host = host;
    EXPECT_EQ(service.Answer(request).status, 200) << host;
  }
}

TEST(StudioService, RefusesQuestionsOfOtherPages) {
  StudioService service = EchoService();
  for (const char* origin : {"http://evil.example", "null", "http://localhost:1", "http://localhost", "ftp://localhost:7480",
                             "http://localhost:7480.evil.example"}) {
    HttpRequest request = Post("/api/plan", kPlan);
    request.origin = origin;
    const HttpReply reply = service.Answer(request);
    EXPECT_EQ(reply.status, 403) << origin;
    EXPECT_THAT(reply.body, HasSubstr("Origin")) << origin;
  }
  for (const char* site : {"cross-site", "same-site", "none"}) {
    HttpRequest request = Post("/api/plan", kPlan);
    request.fetch_site = site;
    EXPECT_EQ(service.Answer(request).status, 403) << site;
  }
  HttpRequest request = Post("/api/plan", kPlan);
  request.origin = "http://localhost:7480";
  request.fetch_site = "same-origin";
  EXPECT_EQ(service.Answer(request).status, 200);
}

TEST(StudioService, RefusesOtherMethodsPathsAndTypes) {
  StudioService service = EchoService();
  EXPECT_EQ(service.Answer(Get("/api/plan")).status, 405);
  EXPECT_EQ(HeaderOf(service.Answer(Get("/api/plan")), "Allow"), "POST");
  EXPECT_EQ(service.Answer(Post("/api/choices", "{}")).status, 405);
  EXPECT_EQ(service.Answer(Post("/", "{}")).status, 405);
  for (const char* path : {"/api", "/api/", "/api/job", "/studio.HTML", "/../etc/passwd", "", "//"}) {
    EXPECT_EQ(service.Answer(Get(path)).status, 404) << path;
  }
  for (const char* type :
       {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=application/json"}) {
    HttpRequest request = Post("/api/plan", kPlan);
    request.content_type = type;
    EXPECT_EQ(service.Answer(request).status, 415) << type;
  }
  HttpRequest request = Post("/api/plan", kPlan);
  request.content_type = "Application/JSON ; charset=utf-8";
  EXPECT_EQ(service.Answer(request).status, 200);
}

TEST(StudioService, RefusesBodiesThatNoPageSends) {
  StudioService service = EchoService();
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"/api/plan", "", "not valid JSON"},
      {"/api/plan", "{\"client\": \"c\", ", "not valid JSON"},
      {"/api/plan", "[]", "must be a JSON object"},
      {"/api/plan", R"({"client": "c", "sequence": 1})", "'state' is missing"},
      {"/api/plan", R"({"state": {}})", "'client' and 'sequence' are missing"},
      {"/api/more", R"({"state": {}, "client": "c"})", "'client' and 'sequence' are missing"},
      {"/api/plan", R"({"state": {}, "client": "c", "sequence": 1, "state": {}})", "'state' occurs twice"},
      {"/api/plan", R"({"state": {}, "client": "c", "sequence": 1, "sequences": 1})", "unknown key 'sequences'"},
      {"/api/plan", R"({"state": {}, "client": "c", "sequence": 1, "format": "job"})", "unknown key 'format'"},
      {"/api/plan", R"({"state": {}, "client": "c", "sequence": -1})", "a whole number"},
      {"/api/plan", R"({"state": {}, "client": "c", "sequence": 18446744073709551615})", "below 2^63"},
      {"/api/plan", R"({"state": {}, "client": 7, "sequence": 1})", "'client' must be a text"},
      {"/api/plan", R"({"state": {}, "client": "", "sequence": 1})", "letters, digits and dashes"},
      {"/api/plan", R"({"state": {}, "client": " 1", "sequence": 1})", "letters, digits and dashes"},
      {"/api/plan", R"({"state": {}, "client": "c", "sequence": 1, "layout": "other"})", "'layout' must be"},
      {"/api/plan", R"({"state": {}, "client": "c", "sequence": 1, "layout": 3})", "'layout' must be"},
      {"/api/export", R"({"state": {}, "format": 5})", "'format' must be a text"},
  };
  for (const auto& [path, body, wanted] : cases) {
    const HttpReply reply = service.Answer(Post(path, body));
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_THAT(Json::parse(reply.body)["error"]["text"].get<std::string>(), HasSubstr(wanted)) << body;
  }
}

TEST(StudioService, AFaultOfThePlannerIsAnAnswer) {
  StudioService service({.hosts = {"localhost"}}, [](const std::string&, const WakeEvent&) -> absl::StatusOr<std::string> {
    return absl::DeadlineExceededError("lynx-studio did not end within 5 min");
  });
  const HttpReply reply = service.Answer(Post("/api/plan", kPlan));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(Json::parse(reply.body)["sequence"], 3);
  EXPECT_EQ(Json::parse(reply.body)["error"]["text"], "no plan was made: lynx-studio did not end within 5 min");
  // An answer that is too long stays so: the page must not ask again.
  StudioService long_service({.hosts = {"localhost"}}, [](const std::string&, const WakeEvent&) -> absl::StatusOr<std::string> {
    return absl::ResourceExhaustedError("lynx-studio printed more than 4194304 bytes");
  });
  EXPECT_EQ(long_service.Answer(Post("/api/plan", kPlan)).status, 200);
  service.Stop();
  EXPECT_EQ(Json::parse(service.Answer(Post("/api/plan", R"({"client": "c-1", "sequence": 9, "state": {}})")).body)["stale"],
            true);
}

}  // namespace
}  // namespace lynx

// Tests the live page: which callers get which answers. The tests use real sockets. Only the tests of limits call the page as
// an object.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "planner/candidates/search.h"
#include "planner/search/make_plan.h"
#include "server/store/store_address.h"
#include "tests/server/access/access_fixture.h"

namespace lynx::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Sends the text unchanged, and reads until the other end closes the connection.
std::string Exchange(const std::string& address, const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(address, ':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(parts.second)));
  inet_pton(AF_INET, parts.first.c_str(), &to.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  std::string reply;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) > 0) {
    char buffer[65536];
    for (ssize_t got = ::recv(fd, buffer, sizeof buffer, 0); got > 0; got = ::recv(fd, buffer, sizeof buffer, 0))
      reply.append(buffer, static_cast<size_t>(got));
  }
  ::close(fd);
  return reply;
}

class LivePageTest : public AccessTest {
 protected:
  LivePageTest() { options_.page_address = "127.0.0.1:0"; }

  std::string Get(const std::string& path, const std::string& headers = "", const std::string& method = "GET") {
    const std::string host =
        headers.find("Host:") == std::string::npos ? absl::StrCat("Host: ", server_->page_address(), "\r\n") : "";
    return Exchange(server_->page_address(), absl::StrCat(method, " ", path, " HTTP/1.1\r\n", host, headers, "\r\n"));
  }
  json GetJson(const std::string& path, const std::string& headers = "") {
    const std::string reply = Get(path, headers);
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 ")) << path;
    EXPECT_THAT(reply, HasSubstr("Content-Type: application/json"));
    return json::parse(reply.substr(reply.find("\r\n\r\n") + 4), nullptr, false);
  }
  void StartOpen() {
    options_.tls = false;
    StartServer();
  }
  std::string Submit() {
    grpc::ClientContext context;
    Prepare(context, admin_token_);
    v1::SubmitJobRequest request;
    *request.mutable_spec() = Spec();
    request.set_idempotency_key("key");
    v1::SubmitJobResponse response;
    const grpc::Status status = v1::Jobs::NewStub(people_)->SubmitJob(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().id();
  }
  void Cordon(const std::string& node, const std::string& reason) {
    grpc::ClientContext context;
    Prepare(context, admin_token_);
    v1::CordonNodeRequest request;
    request.set_node(node);
    request.set_reason(reason);
    v1::CordonNodeResponse response;
    const grpc::Status status = v1::Cluster::NewStub(people_)->CordonNode(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
};

TEST_F(LivePageTest, ServesThePageAndNothingFromElsewhere) {
  StartOpen();
  const std::string page = Get("/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 "));
  for (const char* part :
       {"Content-Type: text/html", "<script src=\"/page.js\"", "X-Content-Type-Options: nosniff", "Cache-Control: no-store",
        "X-Frame-Options: DENY", "Content-Security-Policy: default-src 'none'; script-src 'self';", "frame-ancestors 'none'",
        "Cross-Origin-Resource-Policy: same-origin"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const char* other : {"http://", "https://", "unsafe-inline", "onclick", "style=\""})
    EXPECT_THAT(page, Not(HasSubstr(other)));
  EXPECT_THAT(page, HasSubstr("<script src=\"/shared.js\""));
  for (const char* script : {"/page.js", "/shared.js"}) EXPECT_THAT(Get(script), HasSubstr("Content-Type: text/javascript"));
  const std::string style = Get("/page.css");
  EXPECT_THAT(style, HasSubstr("Content-Type: text/css"));
  for (const char* rule : {"light-dark(", ".plot {", ".cell {"})
    EXPECT_THAT(style, HasSubstr(rule)) << "of the plan's page, the report, and its own";
  std::ifstream file(options_.data_directory + "/" + kPageAddressFile);
  std::string address;
  EXPECT_TRUE(file >> address && address == server_->page_address());
  const std::string head = Get("/", "", "HEAD");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST_F(LivePageTest, TellsOfNodesAndJobs) {
  StartOpen();
  EXPECT_EQ(GetJson("/api/cluster")["all"]["nodes"], 0);
  Cordon("n0", "<img src=x onerror=alert(1)>");
  const std::string job = Submit();
  clock_.Advance(Nanos(1'000'000'000));  // after this time the server makes a new answer instead of the kept one
  const json cluster = GetJson("/api/cluster");
  EXPECT_EQ(cluster["all"]["nodes"], 1);
  EXPECT_EQ(cluster["cells"][0]["first"], "n0");
  EXPECT_EQ(cluster["cells"][0]["cordoned"], 1);
  EXPECT_EQ(cluster["jobs"]["queued"], 1);
  const json jobs = GetJson("/api/jobs");
  ASSERT_EQ(jobs["jobs"].size(), 1u);
  EXPECT_EQ(jobs["jobs"][0]["id"], job);
  EXPECT_EQ(jobs["jobs"][0]["state"], "queued");
  EXPECT_FALSE(jobs["jobs"][0]["pending"].empty());
  const json nodes = GetJson("/api/nodes?from=n0&to=n0");
  EXPECT_EQ(nodes["nodes"][0]["cordon"], "<img src=x onerror=alert(1)>") << "as text, which the page puts in as text";
  EXPECT_TRUE(GetJson("/api/nodes?from=n1&to=n2")["nodes"].empty());
}

TEST_F(LivePageTest, AJobIsThePartsOfItsReportAndTextsAreEscaped) {
  StartOpen();
  const std::string id = Submit();
  grpc::ClientContext context;
  Prepare(context, "");
  v1::CancelJobRequest request;
  request.set_job_id(id);
  request.set_reason("<script>alert('x')</script>");
  v1::CancelJobResponse response;
  ASSERT_TRUE(v1::Jobs::NewStub(people_)->CancelJob(&context, request, &response).ok());
  const json job = GetJson("/api/job?id=" + id);
  EXPECT_EQ(job["name"], "gpt");
  EXPECT_EQ(job["state"], "cancelled");
  std::vector<std::string> parts;
  for (const json& part : job["parts"]) {
    parts.push_back(part["id"]);
    EXPECT_EQ(part["html"].get<std::string>().find("<script"), std::string::npos) << part["id"];
  }
  EXPECT_EQ(parts, (std::vector<std::string>{"head", "figures", "run", "step", "events"}));
  EXPECT_THAT(job["parts"].back()["html"].get<std::string>(), HasSubstr("&lt;script&gt;alert(&#39;x&#39;)"));
  EXPECT_THAT(Get("/api/job?id=none"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(LivePageTest, RefusesWhatItDoesNotServe) {
  StartOpen();
  const std::string post = Get("/api/jobs", "Content-Length: 0\r\n", "POST");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD"));
  for (const char* path : {"/metrics", "/api/", "/page.html", "/../lynx.db", "/page.js/x"})
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404 ")) << path;
  for (const char* path : {"/api/job", "/api/job?id=", "/api/job?id=%3Cb%3E", "/api/job?id=a/b", "/api/job?name=x",
                           "/api/jobs?x=1", "/api/nodes?from=a"}) {
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 400 ")) << path;
  }
  EXPECT_THAT(Get("/api/job?id=" + std::string(64, 'a')), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get("/" + std::string(20'000, 'a')), Not(HasSubstr(" 200 "))) << "longer than a request may be";
}

TEST_F(LivePageTest, AnswersUnderItsOwnNamesAlone) {
  options_.tls_names = {"Lynx.Example"};
  StartOpen();
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:7472", "[::1]:80", "lynx.example", "lynx.example:443"}) {
    EXPECT_THAT(Get("/api/jobs", absl::StrCat("Host: ", host, "\r\n")), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const char* host : {"evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "[::2]", "[", ""}) {
    const std::string reply = Get("/api/jobs", absl::StrCat("Host: ", host, "\r\n"));
    EXPECT_THAT(reply, Not(HasSubstr(" 200 "))) << host;
    EXPECT_THAT(reply, Not(HasSubstr("\"jobs\""))) << host;
  }
  EXPECT_THAT(Get("/", "Host: evil.example\r\n"), StartsWith("HTTP/1.1 421 "));
}

TEST_F(LivePageTest, WithTlsItAsksForATokenOfAViewer) {
  StartServer();
  const std::string token = AddUser("vera", v1::ROLE_VIEWER);
  for (const char* path : {"/", "/page.js", "/api/cluster", "/api/jobs", "/api/nodes?from=a&to=b", "/api/job?id=x"}) {
    const std::string reply = Get(path);
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 401 ")) << path;
    EXPECT_THAT(reply, HasSubstr("WWW-Authenticate: Basic realm=")) << path;
  }
  EXPECT_THAT(Get("/api/jobs", absl::StrCat("Authorization: Bearer ", token, "\r\n")), StartsWith("HTTP/1.1 200 "));
  std::string basic;
  absl::Base64Escape("whoever:" + token, &basic);
  EXPECT_THAT(Get("/", absl::StrCat("Authorization: Basic ", basic, "\r\n")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get("/", absl::StrCat("authorization: basic ", basic, "\r\n")), StartsWith("HTTP/1.1 200 "));
  for (const char* wrong : {"Bearer x", "Basic eA==", "Basic !", "Digest x", "Bearer "}) {
    EXPECT_THAT(Get("/", absl::StrCat("Authorization: ", wrong, "\r\n")), StartsWith("HTTP/1.1 401 ")) << wrong;
  }
  v1::RevokeUserRequest request;
  request.set_name("vera");
  v1::RevokeUserResponse response;
  ASSERT_TRUE(Admin(admin_token_, &v1::Admin::Stub::RevokeUser, request, &response).ok());
  EXPECT_THAT(Get("/api/jobs", absl::StrCat("Authorization: Bearer ", token, "\r\n")), StartsWith("HTTP/1.1 401 "));
  EXPECT_GT(Audit(true).records_size(), 0) << "what was refused is recorded";
}

TEST_F(LivePageTest, HasTheStudioAsATab) {
  StartOpen();
  EXPECT_THAT(Get("/"), HasSubstr("<a href=\"/studio/\">Studio</a>"));
  const std::string moved = Get("/studio");
  EXPECT_THAT(moved, StartsWith("HTTP/1.1 307 "));
  EXPECT_THAT(moved, HasSubstr("Location: /studio/\r\n"));
  const std::string page = Get("/studio/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 "));
  for (const char* part : {"<a href=\"/\">Cluster</a>", "src=\"studio.js\"", "X-Frame-Options: DENY", "frame-ancestors 'none'"})
    EXPECT_THAT(page, HasSubstr(part));
  for (const char* file : {"/studio/studio.js", "/studio/plan.js", "/studio/studio.css", "/studio/plan.css"})
    EXPECT_THAT(Get(file), StartsWith("HTTP/1.1 200 ")) << file;
  for (const char* path : {"/studio/none", "/studios", "/studio.js", "/api/plan", "/api/choices"})
    EXPECT_THAT(Get(path), StartsWith("HTTP/1.1 404 ")) << path;
  const json choices = GetJson("/studio/api/choices");
  EXPECT_THAT(choices["cluster"]["note"].get<std::string>(), HasSubstr("No node of this cluster"));
  EXPECT_EQ(choices["cluster"]["machine"], "");
  EXPECT_FALSE(choices["machines"].empty()) << "the ready-made ones";
}

TEST_F(LivePageTest, TheStudioAnswersItsOwnPageAlone) {
  StartOpen();
  const std::string body = R"({"state": {}, "client": "c", "sequence": 1})";
  const auto post = [&](const std::string& headers, const std::string& type = "application/json") {
    return Exchange(server_->page_address(), absl::StrCat("POST /studio/api/plan HTTP/1.1\r\n", headers, "Content-Type: ", type,
                                                          "\r\nContent-Length: ", body.size(), "\r\n\r\n", body));
  };
  const std::string host = absl::StrCat("Host: ", server_->page_address(), "\r\n");
  EXPECT_THAT(post(host), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(post(host + "Origin: http://evil.example\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(post(host + "Sec-Fetch-Site: cross-site\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(post(host, "text/plain"), StartsWith("HTTP/1.1 415 "));
  EXPECT_THAT(post("Host: evil.example\r\n"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(Get("/studio/", "Host: evil.example\r\n"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(Get("/studio/api/plan"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(LivePageTest, WithTlsTheStudioAsksForATokenOfAViewer) {
  StartServer();
  const std::string token = absl::StrCat("Authorization: Bearer ", AddUser("vera", v1::ROLE_VIEWER), "\r\n");
  for (const char* path : {"/studio", "/studio/", "/studio/studio.js", "/studio/api/choices", "/studio/none"}) {
    const std::string reply = Get(path);
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 401 ")) << path;
    EXPECT_THAT(reply, HasSubstr("WWW-Authenticate: Basic realm=")) << path;
    EXPECT_THAT(Get(path, "Authorization: Bearer x\r\n"), StartsWith("HTTP/1.1 401 ")) << path;
  }
  const std::string empty = "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
  const auto post = [&](const std::string& headers) {
    return Exchange(server_->page_address(),
                    absl::StrCat("POST /studio/api/plan HTTP/1.1\r\nHost: ", server_->page_address(), "\r\n", headers, empty));
  };
  EXPECT_THAT(post(""), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(post(token), StartsWith("HTTP/1.1 400 ")) << "admitted, and then found to lack a state";
  // The body never comes. A refusal does not wait for it.
  const auto begin = [&](const std::string& path, const std::string& headers) {
    return Exchange(server_->page_address(), absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: ", server_->page_address(), "\r\n",
                                                          headers, "Content-Length: 2\r\n\r\n"));
  };
  EXPECT_THAT(begin("/studio/api/plan", ""), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(begin("/studio/api/plan", token), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(begin("/api/cluster", token), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Get("/studio/", token), StartsWith("HTTP/1.1 200 "));
}

TEST_F(LivePageTest, WhereItIsServed) {
  options_.page_address = "0.0.0.0:0";
  options_.tls = false;
  absl::StatusOr<std::unique_ptr<Server>> refused = Server::Start(options_, clock_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* words : {"--page-address 0.0.0.0:0", "loopback", "ssh -L", "--insecure"})
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(words));
  options_.insecure = true;
  StartServer();
  EXPECT_THAT(server_->page_address(), StartsWith("0.0.0.0:"));
  server_.reset();
  options_.insecure = false;
  options_.page_address = "nonsense";
  refused = Server::Start(options_, clock_);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--page-address"));
}

TEST_F(LivePageTest, ByDefaultOnlyWhereTheServerIsOpenAnyway) {
  options_.page_address = kAutoPage;
  StartOpen();
  EXPECT_THAT(server_->page_address(), StartsWith("127.0.0.1:"));
  options_.tls = true;
  StartServer();
  EXPECT_EQ(server_->page_address(), "");
  EXPECT_FALSE(std::filesystem::exists(options_.data_directory + "/" + kPageAddressFile));
  options_.tls = false;
  options_.page_address = "";
  StartServer();
  EXPECT_EQ(server_->page_address(), "");
}

TEST_F(LivePageTest, AnAddressThatIsTakenIsNamed) {
  StartOpen();
  const std::string taken = server_->page_address();
  ServerOptions other = options_;
  other.data_directory = directory_ + "/other";
  other.page_address = taken;
  const absl::StatusOr<std::unique_ptr<Server>> second = Server::Start(other, clock_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(taken));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--page-address"));
}

// Calls the page as an object, without a socket. Hold() blocks the owner thread of the page's server core.
class LivePageLimitsTest : public ::testing::Test {
 protected:
  LivePageLimitsTest() {
    std::string pattern = ::testing::TempDir() + "lynx_page_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    CoreOptions options;
    options.controller.wanted_shapes = WantedShapes;
    options.planner = MakePlan;
    options.loop.queue_limit = 4;
    core_ = ServerCore::Start(std::move(options), OpenStore("", directory_).value(), real_).value();
    jobs_ = std::make_unique<JobsService>(*core_, book_);
    guard_ = std::make_unique<Guard>(true, book_, CallLimitOptions{}, real_,
                                     Guard::Hooks{.refused = [](AuditRecord) {}, .queue = [this] { return queue_; }});
  }
  ~LivePageLimitsTest() override {
    Release();
    core_->Stop();
    std::filesystem::remove_all(directory_);
  }
  LivePage Page(Nanos patience = Nanos(60'000'000'000)) {
    return LivePage(*core_, *jobs_, *guard_, {.hosts = {"localhost"}, .patience = patience}, clock_);
  }
  static HttpRequest Request(const std::string& path) {
    return {.method = "GET", .path = path, .host = "localhost", .from = "127.0.0.1"};
  }
  // Blocks the owner thread until Release is called.
  void Hold() {
    core_->loop().RunAlways([this] {
      std::unique_lock lock(mutex_);
      held_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return released_; });
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  std::string directory_;
  RealClock real_;
  SimulatedClock clock_;
  AccessBook book_;
  size_t queue_ = 0;
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<JobsService> jobs_;
  std::unique_ptr<Guard> guard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, released_ = false;  // guarded by mutex_
};

TEST_F(LivePageLimitsTest, AnAnswerIsKeptForAWhile) {
  clock_.Advance(Nanos(1'000'000'000));
  LivePage page = Page();
  const std::string first = page.Answer(Request("/api/cluster")).body;
  core_->loop().PostAlways(CordonRequested{core_->Await([](const Reply&) {}), NodeId("n0"), Cordon{.reason = "work"}});
  Hold();
  EXPECT_EQ(page.Answer(Request("/api/cluster")).body, first) << "without the owner thread";
  Release();
  clock_.Advance(Nanos(1'000'000'000));
  EXPECT_THAT(first, Not(HasSubstr("\"n0\"")));
  EXPECT_THAT(page.Answer(Request("/api/cluster")).body, HasSubstr("\"n0\""));
}

TEST_F(LivePageLimitsTest, TheStudioLooksAtTheClusterOnceForAWhile) {
  clock_.Advance(Nanos(1'000'000'000));
  LivePage page = Page(Nanos(1'000'000'000));
  const std::string first = page.Answer(Request("/studio/api/choices")).body;
  EXPECT_THAT(first, HasSubstr("No node of this cluster"));
  Hold();
  EXPECT_EQ(page.Answer(Request("/studio/api/choices")).body, first) << "without the owner thread";
  clock_.Advance(Nanos(1'000'000'000));
  EXPECT_EQ(page.Answer(Request("/studio/api/choices")).status, 503) << "the owner thread does not answer";
  EXPECT_EQ(page.Answer(Request("/studio/")).status, 200);
  Release();
  EXPECT_EQ(page.Answer(Request("/studio/api/choices")).status, 503) << "the error is kept for a while, too";
  clock_.Advance(Nanos(1'000'000'000));
  EXPECT_EQ(page.Answer(Request("/studio/api/choices")).body, first);
  page.Stop();
}

TEST_F(LivePageLimitsTest, AServerThatIsBehindSaysSo) {
  LivePage page = Page(Nanos(1'000'000));
  Hold();
  const HttpReply late = page.Answer(Request("/api/jobs"));
  EXPECT_EQ(late.status, 503);
  EXPECT_THAT(late.body, HasSubstr("behind"));
  EXPECT_THAT(late.headers, ::testing::Contains(::testing::Key("Retry-After")));
  EXPECT_EQ(page.Answer(Request("/page.js")).status, 200) << "what needs no owner thread";
  for (int i = 0; i < 8; ++i) core_->loop().Run([] {});
  clock_.Advance(Nanos(2'000'000'000));
  EXPECT_EQ(page.Answer(Request("/api/cluster")).status, 503) << "its queue is full";
  queue_ = 1'000'000;
  EXPECT_EQ(page.Answer(Request("/api/cluster")).status, 503) << "nodes come first";
}

TEST_F(LivePageLimitsTest, AfterTheServerHasStoppedThereIsAnAnswerToo) {
  LivePage page = Page();
  core_->Stop();
  EXPECT_EQ(page.Answer(Request("/api/cluster")).status, 503);
}

}  // namespace
}  // namespace lynx::server

#include "cli/output/listings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/output/output.h"

namespace lynx::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Nanos kNow{121'000'000'000};

std::string Text(const Listing& listing, OutputFormat format = OutputFormat::kTable) {
  const absl::StatusOr<std::string> text = ListingText(listing, format);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

v1::Job RunningJob() {
  v1::Job job;
  job.set_id("j1");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_spec()->set_name("tiny");
  job.mutable_spec()->mutable_train()->set_steps(400);
  job.mutable_spec()->mutable_scheduling()->set_queue("research");
  job.mutable_progress()->set_steps_done(120);
  job.mutable_progress()->set_loss(2.31);
  job.mutable_progress()->set_tokens_per_second(12345);
  job.mutable_progress()->set_step_ns(50'000'000);
  job.mutable_progress()->set_eta_ns(70'000'000'000);
  job.set_submitted_unix_ns(1'000'000'000);
  job.set_reason("training, \"well\"\nmore");
  job.set_generation(2);
  for (const char* node : {"n0", "n0", "n1"}) job.add_placement()->set_node(node);
  return job;
}

std::string Jobs(OutputFormat format, const std::vector<v1::Job>& jobs) {
  return Text(JobListing(jobs, CellText(format, kNow)), format);
}

TEST(JobListing, OneLineAJobAndFirstLineOfTheReason) {
  EXPECT_EQ(Jobs(OutputFormat::kTable, {RunningJob()}),
            "ID  NAME  STATE    STEPS    LOSS   TOK/S  AGE  REASON\n"
            "j1  tiny  RUNNING  120/400  2.310  12.3k  2m   training, \"well\"\n");
  EXPECT_EQ(Jobs(OutputFormat::kTable, {}), "no jobs\n");
}

TEST(JobListing, WideHasMore) {
  EXPECT_EQ(Jobs(OutputFormat::kWide, {RunningJob()}),
            "ID  NAME  STATE    STEPS    LOSS   TOK/S  STEP     ETA    QUEUE     PRIORITY  RANKS  NODES  ATTEMPT  RESTARTS  "
            "AGE  REASON\n"
            "j1  tiny  RUNNING  120/400  2.310  12.3k  50.0 ms  1m10s  research  0         3      n0,n1  2        0         2m "
            "  training, \"well\"\n");
}

TEST(JobListing, CsvIsWholeAndQuoted) {
  EXPECT_EQ(
      Jobs(OutputFormat::kCsv, {RunningJob()}),
      "id,name,user,state,steps_done,steps,loss,tokens_per_second,step_seconds,eta_seconds,queue,priority,ranks,nodes,attempt,"
      "restarts,submitted,reason\n"
      "j1,tiny,,RUNNING,120,400,2.31,12345,0.05,70,research,0,3,\"n0,n1\",2,0,1970-01-01T00:00:01Z,\"training, "
      "\"\"well\"\"\nmore\"\n");
  v1::Job waiting;
  waiting.set_id("j2");
  waiting.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_THAT(Jobs(OutputFormat::kCsv, {waiting}), HasSubstr("\nj2,,,QUEUED,0,0,,,,,,0,0,,0,0,,\n"))
      << "what is not known is empty";
  EXPECT_EQ(Jobs(OutputFormat::kCsv, {}).find("id,name"), 0u) << "a header also where there is nothing";
}

TEST(JobListing, ShowsUsersWhereThereAreAny) {
  v1::Job local = RunningJob(), owned = RunningJob();
  local.set_owner("local");
  owned.set_owner("alice");
  EXPECT_THAT(Jobs(OutputFormat::kTable, {local}), Not(HasSubstr("USER")));
  EXPECT_THAT(Jobs(OutputFormat::kTable, {local, owned}), HasSubstr("NAME  USER   STATE"));
  EXPECT_THAT(Jobs(OutputFormat::kTable, {local, owned}), HasSubstr("tiny  alice  RUNNING"));
  EXPECT_THAT(Jobs(OutputFormat::kCsv, {local}), HasSubstr("j1,tiny,local,RUNNING"));
  owned.set_state(v1::JOB_STATE_FAILED);
  EXPECT_THAT(Text(HistoryListing({owned}, CellText(OutputFormat::kTable, kNow))), HasSubstr("tiny  alice  FAILED"));
}

TEST(JobListing, NamesAreOneALine) {
  v1::Job other = RunningJob();
  other.set_id("j2");
  EXPECT_EQ(Jobs(OutputFormat::kName, {RunningJob(), other}), "j1\nj2\n");
}

TEST(HistoryListing, SaysHowLongJobsWaitedAndTook) {
  v1::Job job = RunningJob();
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_started_unix_ns(11'000'000'000);
  job.set_ended_unix_ns(61'500'000'000);
  job.set_restarts(3);
  v1::Job never = job;
  never.set_id("j2");
  never.set_state(v1::JOB_STATE_CANCELLED);
  never.set_started_unix_ns(0);
  never.clear_progress();
  const CellText cells(OutputFormat::kTable, kNow);
  EXPECT_EQ(Text(HistoryListing({job, never}, cells)),
            "ID  NAME  STATE      STEPS    LOSS   WAITED   TOOK     RESTARTS  ENDED  REASON\n"
            "j1  tiny  FAILED     120/400  2.310  10.00 s  50.50 s  3         59s    training, \"well\"\n"
            "j2  tiny  CANCELLED  0/400    -      1m00s    -        3         59s    training, \"well\"\n");
  EXPECT_THAT(Text(HistoryListing({job}, CellText(OutputFormat::kCsv, kNow)), OutputFormat::kCsv), HasSubstr(",10,50.5,2,3,"));
  EXPECT_EQ(Text(HistoryListing({}, cells)), "no job has ended\n");
}

TEST(QueueListing, ShowsQuotasOfUsersAndManagersWhereThereAreAny) {
  v1::Queue plain, shared;
  plain.set_name("default");
  plain.set_weight(1);
  shared = plain;
  shared.set_name("research");
  shared.set_user_quota_devices(4);
  shared.add_managers("alice");
  shared.add_managers("bob");
  const CellText cells(OutputFormat::kTable, kNow);
  EXPECT_EQ(Text(QueueListing({plain}, cells)),
            "QUEUE    WEIGHT  QUOTA  BORROWS  DEVICES  RUNNING  WAITING\n"
            "default  1       -      yes      0        0        0\n");
  EXPECT_EQ(Text(QueueListing({plain, shared}, cells)),
            "QUEUE     WEIGHT  QUOTA  USER QUOTA  BORROWS  DEVICES  RUNNING  WAITING  MANAGERS\n"
            "default   1       -      -           yes      0        0        0        -\n"
            "research  1       -      4           yes      0        0        0        alice,bob\n");
}

std::string NodesText(const std::vector<v1::Node>& nodes, OutputFormat format = OutputFormat::kTable) {
  return Text(NodeListing(nodes, CellText(format, kNow)), format);
}

TEST(NodeListing, SaysWhatIsMissing) {
  v1::Node node;
  node.set_name("n1");
  node.set_agent_attached(true);
  EXPECT_THAT(NodesText({node}), HasSubstr("no worker"));
  node.set_worker_attached(true);
  EXPECT_THAT(NodesText({node}), HasSubstr("ready"));
  node.set_agent_attached(false);
  EXPECT_THAT(NodesText({node}), HasSubstr("no agent"));
  EXPECT_EQ(NodesText({}), "no nodes have attached yet\n");
}

TEST(NodeListing, ShowsDomainsWhereThereAreAny) {
  v1::Node near, unknown;
  near.set_name("n0");
  unknown.set_name("n1");
  EXPECT_THAT(NodesText({near, unknown}), Not(HasSubstr("DOMAIN")));
  near.set_network_domain("row2/rack7");
  const std::string table = NodesText({near, unknown});
  EXPECT_THAT(table, HasSubstr("NODE  STATE  DOMAIN      KIND"));
  EXPECT_THAT(table, HasSubstr("n0    away   row2/rack7  -"));
  EXPECT_THAT(table, HasSubstr("n1    away   -           -"));
}

TEST(NodeListing, ShowsTheKindOfDevicesAndTheConditions) {
  v1::Node node;
  node.set_name("n1");
  EXPECT_THAT(NodesText({node}), HasSubstr("n1    away   -     0"));
  node.set_worker_version("1.2");
  v1::Device& device = *node.add_devices();
  device.set_kind("cuda");
  device.set_model("H200");
  device.set_memory_bytes(int64_t{1} << 30);
  v1::NodeCondition& condition = *node.add_conditions();
  condition.set_kind("xid");
  condition.set_device("GPU-7");
  condition.set_message("GPU 0 had Xid 79");
  condition.set_since_unix_ns(1'000'000'000);
  const std::string table = NodesText({node});
  EXPECT_THAT(table, HasSubstr("n1    away   cuda  1"));
  EXPECT_THAT(table, HasSubstr("\nn1: xid: GPU 0 had Xid 79 (for 2m)"));
  EXPECT_THAT(NodesText({node}, OutputFormat::kWide), HasSubstr("cuda  H200   1"));
  EXPECT_THAT(NodesText({node}, OutputFormat::kWide), HasSubstr("1.2"));
  EXPECT_THAT(NodesText({node}, OutputFormat::kCsv), HasSubstr("\nn1,away,,cuda,H200,1,0,1073741824,,,,,,1.2,,\n"));
  EXPECT_EQ(NodesText({node}, OutputFormat::kName), "n1\n");
}

TEST(NodeListing, SaysWhoIsCordonedAndWhy) {
  v1::Node node;
  node.set_name("n1");
  node.mutable_cordon()->set_drain(true);
  node.mutable_cordon()->set_reason("new fans");
  node.mutable_cordon()->set_since_unix_ns(1'000'000'000);
  EXPECT_THAT(NodesText({node}), HasSubstr("away,drained"));
  EXPECT_THAT(NodesText({node}), HasSubstr("\nn1: drained: new fans (for 2m)\n"));
  node.add_jobs("j1");
  EXPECT_THAT(NodesText({node}), HasSubstr("away,draining"));
}

TEST(NodeListing, NotesStayOnTheirLine) {
  v1::Node node;
  node.set_name("n1");
  node.mutable_cordon()->set_reason("fans\nn2: cordoned: \x1b[8m");
  v1::NodeCondition& condition = *node.add_conditions();
  condition.set_kind("xid\r");
  condition.set_message("a\tb\x7f");
  const std::string table = NodesText({node});
  EXPECT_THAT(table, HasSubstr("\nn1: cordoned: fans\\nn2: cordoned: \\x1b[8m (for "));
  EXPECT_THAT(table, HasSubstr("\nn1: xid\\r: a b\\x7f (for "));
}

TEST(Listings, DocumentsAndSpreadsheetsAreExact) {
  v1::Job job = RunningJob();
  job.set_reason("\x1b[1mx\r\n");
  EXPECT_THAT(Jobs(OutputFormat::kTable, {job}), HasSubstr("\\x1b[1mx\\r\n"));
  EXPECT_THAT(Jobs(OutputFormat::kCsv, {job}), HasSubstr(",\"\x1b[1mx\r\n\""));
  EXPECT_THAT(JsonText(job), HasSubstr(R"("reason": "\u001b[1mx\r\n")"));
  EXPECT_THAT(YamlText(job), HasSubstr(R"(reason: "\u001b[1mx\r\n")"));
}

TEST(QueueListing, NoQuotaIsNoNumber) {
  v1::Queue queue;
  queue.set_name("default");
  queue.set_weight(1);
  queue.set_no_borrowing(true);
  EXPECT_EQ(
      Text(QueueListing({queue}, CellText(OutputFormat::kTable, kNow))),
      "QUEUE    WEIGHT  QUOTA  BORROWS  DEVICES  RUNNING  WAITING\ndefault  1       -      no       0        0        0\n");
}

TEST(EventListing, HasNoNamesOfItsOwn) {
  v1::JobEvent event;
  event.set_sequence(7);
  event.set_time_unix_ns(1'500'000'000);
  event.set_state(v1::JOB_STATE_RUNNING);
  event.set_kind("checkpoint");
  event.set_reason("step 5");
  const CellText cells(OutputFormat::kCsv, kNow);
  EXPECT_EQ(Text(EventListing({event}, cells), OutputFormat::kCsv),
            "sequence,time,state,event,reason\n7,1970-01-01T00:00:01.5Z,RUNNING,checkpoint,step 5\n");
  const absl::StatusOr<std::string> names = ListingText(EventListing({event}, cells), OutputFormat::kName);
  EXPECT_EQ(names.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(names.status().message()), HasSubstr("-o name: these have no names"));
  EXPECT_EQ(Text(EventListing({}, cells)), "no events\n");
}

TEST(Yaml, IsTheSameAsJson) {
  v1::ListJobsResponse response;
  EXPECT_THAT(YamlText(response), HasSubstr("jobs: []\n"));
  v1::Job& job = *response.add_jobs();
  job.set_id("12e5");
  job.set_reason("a: b\nc");
  job.mutable_spec()->set_name("no");
  job.add_pending()->set_kind("quota");
  job.add_waits_for("j0");
  const std::string text = YamlText(response);
  EXPECT_THAT(text, HasSubstr("jobs:\n- id: \"12e5\"\n")) << "a text that reads like a number is quoted";
  EXPECT_THAT(text, HasSubstr("\n  reason: \"a: b\\nc\"\n"));
  EXPECT_THAT(text, HasSubstr("\n    name: \"no\"\n"));
  EXPECT_THAT(text, HasSubstr("\n  pending:\n  - kind: quota\n    text: \"\"\n"));
  EXPECT_THAT(text, HasSubstr("\n  waitsFor:\n  - j0\n"));
  EXPECT_EQ(YamlOf("[]"), "[]\n");
  EXPECT_EQ(YamlOf("[[1,2],{\"a\":{}}]"), "- - 1\n  - 2\n- a: {}\n");
  EXPECT_EQ(YamlOf("1.5"), "1.5\n");
}

TEST(Formats, AVerbSaysWhatItPrints) {
  const absl::Status status = CheckOutput(OutputFormat::kCsv, {OutputFormat::kTable, OutputFormat::kYaml});
  EXPECT_EQ(status.message(), "-o csv: this verb prints table, yaml");
  EXPECT_TRUE(CheckOutput(OutputFormat::kYaml, {OutputFormat::kTable, OutputFormat::kYaml}).ok());
}

v1::ListedServer ServerOf(const std::string& address, v1::ServerRole role, const std::string& encryption) {
  v1::ListedServer server;
  server.set_address(address);
  server.set_role(role);
  if (role == v1::SERVER_ROLE_LEADS) server.set_epoch(7);
  server.set_version("1.2.3");
  server.set_since_unix_ns(1'000'000'000);
  server.set_seen_unix_ns(role == v1::SERVER_ROLE_SILENT ? 61'000'000'000 : 120'000'000'000);
  server.set_encrypt_ranks(encryption);
  server.set_host("head");
  server.set_process(42);
  return server;
}

TEST(ServerListing, SaysWhoLeadsAndWhoStandsBy) {
  const std::vector<v1::ListedServer> servers = {ServerOf("a:7470", v1::SERVER_ROLE_LEADS, "off"),
                                                 ServerOf("b:7470", v1::SERVER_ROLE_STANDS_BY, "off")};
  EXPECT_EQ(Text(ServerListing(servers, CellText(OutputFormat::kTable, kNow))),
            "SERVER  ROLE       EPOCH  VERSION  ENCRYPT-RANKS  SEEN\n"
            "a:7470  leads      7      1.2.3    off            now\n"
            "b:7470  stands by  -      1.2.3    off            1s\n");
  EXPECT_EQ(Text(ServerListing(servers, CellText(OutputFormat::kWide, kNow)), OutputFormat::kWide),
            "SERVER  ROLE       EPOCH  VERSION  ENCRYPT-RANKS  HOST  PROCESS  SINCE  SEEN\n"
            "a:7470  leads      7      1.2.3    off            head  42       2m     now\n"
            "b:7470  stands by  -      1.2.3    off            head  42       2m     1s\n");
  EXPECT_EQ(Text(ServerListing(servers, CellText(OutputFormat::kCsv, kNow)), OutputFormat::kCsv),
            "server,role,epoch,version,encrypt_ranks,host,process,since,seen\n"
            "a:7470,leads,7,1.2.3,off,head,42,1970-01-01T00:00:01Z,1970-01-01T00:02:00Z\n"
            "b:7470,stands by,,1.2.3,off,head,42,1970-01-01T00:00:01Z,1970-01-01T00:02:00Z\n");
  EXPECT_EQ(Text(ServerListing(servers, CellText(OutputFormat::kName, kNow)), OutputFormat::kName), "a:7470\nb:7470\n");
}

TEST(ServerListing, NamesServersWithAnotherPolicy) {
  const Listing listing =
      ServerListing({ServerOf("a:7470", v1::SERVER_ROLE_SILENT, "on"), ServerOf("b:7470", v1::SERVER_ROLE_LEADS, "off")},
                    CellText(OutputFormat::kTable, kNow));
  EXPECT_THAT(Text(listing), HasSubstr("a:7470  silent"));
  EXPECT_EQ(listing.notes,
            "a:7470: --encrypt-ranks is on there, and off on the server that leads: it does not stand by until it is started "
            "with the same\n");
  const auto refused =
      ServerListing({ServerOf("a:7470", v1::SERVER_ROLE_STANDS_BY, "on"), ServerOf("b:7470", v1::SERVER_ROLE_LEADS, "off")},
                    CellText(OutputFormat::kTable, kNow));
  EXPECT_THAT(Text(refused), HasSubstr("a:7470  refused"));
}

}  // namespace
}  // namespace lynx::cli

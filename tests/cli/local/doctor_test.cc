#include "cli/local/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "node/metrics_endpoint.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace lynx::cli {
namespace {

using testing::HasSubstr;

// Returns the facts of a machine without any problem.
MachineFacts Fit() {
  MachineFacts facts{.version = "1.0",
                     .kernel = "Linux 6",
                     .cores = 8,
                     .memory = kGiB * 16,
                     .memory_available = kGiB * 8,
                     .shared = kGiB * 8,
                     .shared_available = kGiB * 8,
                     .open_files = 65536,
                     .locked_bytes = kNoLimit,
                     .processes = kNoLimit,
                     .clock_synchronized = true};
  facts.ports = {{.port = 7470, .purpose = "lynx-server"}};
  facts.disk = {
      .folder = "/data", .status = absl::OkStatus(), .size = kGiB * 100, .available = kGiB * 50, .bytes_per_second = 2e8};
  facts.server = ServerFacts{.address = "10.0.0.1:7470",
                             .source = "--server",
                             .is_here = true,
                             .status = absl::OkStatus(),
                             .version = "1.0",
                             .clock_ahead_ns = 3'000'000,
                             .clock_error_ns = 1'000'000,
                             .nodes = {{"n0", "ready", "1.0", "1.0"}}};
  return facts;
}

// Returns all findings that are not ok, each as "VERDICT WHAT: FOUND".
std::vector<std::string> Wrong(const MachineFacts& facts) {
  std::vector<std::string> wrong;
  for (const Finding& finding : Diagnose(facts)) {
    EXPECT_EQ(finding.mend.empty(), finding.verdict == Verdict::kOk) << finding.what;
    if (finding.verdict != Verdict::kOk)
      wrong.push_back(std::string(VerdictName(finding.verdict)) + " " + finding.what + ": " + finding.found);
  }
  return wrong;
}

TEST(Doctor, NothingIsWrongWithAFitMachine) {
  EXPECT_THAT(Wrong(Fit()), testing::ElementsAre());
  EXPECT_EQ(WorstOf(Diagnose(Fit())), Verdict::kOk);
  MachineFacts alone = Fit();
  alone.server.reset();
  EXPECT_LT(Diagnose(alone).size(), Diagnose(Fit()).size());
}

TEST(Doctor, SaysWhichServerLeads) {
  MachineFacts facts = Fit();
  facts.server->all = {{"a:1", absl::OkStatus(), ""}, {"b:1", absl::OkStatus(), "c:1"}, {"c:1", absl::OkStatus()}};
  std::vector<std::string> found;
  for (const Finding& finding : Diagnose(facts)) {
    if (finding.what == "server") found.push_back(finding.found);
  }
  EXPECT_THAT(found, testing::ElementsAre("a:1 stands by; no server leads at present", "b:1 stands by for c:1", "c:1 leads",
                                          "lynx-server 1.0 at 10.0.0.1:7470 (from --server)"));
  EXPECT_EQ(WorstOf(Diagnose(facts)), Verdict::kOk);
}

struct Case {
  const char* name;
  void (*spoil)(MachineFacts&);
  const char* wrong;
};

class DoctorCase : public testing::TestWithParam<Case> {};

TEST_P(DoctorCase, IsFound) {
  MachineFacts facts = Fit();
  GetParam().spoil(facts);
  const std::vector<std::string> wrong = Wrong(facts);
  ASSERT_EQ(wrong.size(), 1u) << testing::PrintToString(wrong);
  EXPECT_EQ(wrong[0], GetParam().wrong);
}

INSTANTIATE_TEST_SUITE_P(
    All, DoctorCase,
    testing::Values(
        Case{"Gpus", [](MachineFacts& f) { f.nvidia_driver = true; }, "problem devices: 8 cores; NVIDIA driver, 0 GPUs"},
        Case{"Memory", [](MachineFacts& f) { f.memory_available = kMiB * 100; },
             "warning memory: 100.0 MiB of 16.0 GiB available"},
        Case{"NoShared", [](MachineFacts& f) { f.shared.reset(); }, "warning /dev/shm: not there"},
        Case{"LittleShared", [](MachineFacts& f) { f.shared_available = kMiB * 64; },
             "warning /dev/shm: 64.0 MiB of 8.0 GiB free"},
        Case{"FewFiles", [](MachineFacts& f) { f.open_files = 512; }, "warning open files: limit 512"},
        Case{"TooFewFiles", [](MachineFacts& f) { f.open_files = 64; }, "problem open files: limit 64"},
        Case{"Processes", [](MachineFacts& f) { f.processes = 100; }, "warning processes: limit 100"},
        Case{"Locked", [](MachineFacts& f) { f.nvidia_driver = true, f.gpus = 1, f.locked_bytes = 65536; },
             "warning locked memory: limit 64.0 KiB"},
        Case{"DiskFull", [](MachineFacts& f) { f.disk.available = kMiB * 10; },
             "problem disk space: 10.0 MiB of 100.0 GiB free in /data"},
        Case{"DiskNearlyFull", [](MachineFacts& f) { f.disk.available = kGiB; },
             "warning disk space: 1.0 GiB of 100.0 GiB free in /data"},
        Case{"SlowDisk", [](MachineFacts& f) { f.disk.bytes_per_second = 1 << 20; },
             "warning disk speed: 1.0 MiB/s written and synced"},
        Case{"NoDisk", [](MachineFacts& f) { f.disk.status = absl::PermissionDeniedError("cannot make a file in /data: no"); },
             "problem disk: cannot make a file in /data: no"},
        Case{"Port", [](MachineFacts& f) { f.ports[0].taken = true, f.server->address = "10.0.0.1:9999"; },
             "warning port: 7470 of lynx-server is taken"},
        Case{"PortOfAServerElsewhere", [](MachineFacts& f) { f.ports[0].taken = true, f.server->is_here = false; },
             "warning port: 7470 of lynx-server is taken"},
        Case{"PortOfADaemon",
             [](MachineFacts& f) {
               f.ports.push_back({.port = 7473, .purpose = "lynx-agent's metrics", .taken = true, .of_server = false}),
                   f.ports[0].taken = true;
             },
             "warning port: 7473 of lynx-agent's metrics is taken"},
        Case{"TimeService", [](MachineFacts& f) { f.clock_synchronized = false; },
             "hint time service: nobody has told the kernel that the clock is synchronised"},
        Case{"Server", [](MachineFacts& f) { f.server->status = absl::UnavailableError("cannot reach lynx-server at x"); },
             "problem server: cannot reach lynx-server at x"},
        Case{"OneOfSeveralServers",
             [](MachineFacts& f) {
               f.server->all = {{"a:1", absl::OkStatus()},
                                {"b:1", absl::OkStatus(), "a:1"},
                                {"c:1", absl::UnavailableError("connection refused")}};
             },
             "warning server: c:1 does not answer: connection refused"},
        Case{"Clock", [](MachineFacts& f) { f.server->clock_ahead_ns = -5'000'000'000; },
             "warning clock: the server's is 5.00 s behind this machine's, give or take 1.0 ms"},
        Case{"FarClock", [](MachineFacts& f) { f.server->clock_ahead_ns = 90'000'000'000; },
             "problem clock: the server's is 1m30s ahead of this machine's, give or take 1.0 ms"},
        Case{"SlowCall",
             [](MachineFacts& f) {
               f.server->clock_ahead_ns = 5'000'000'000, f.server->clock_error_ns = 4'500'000'000, f.server->version = "2";
               f.server->nodes.clear();
             },
             "warning versions: lynxctl 1.0, lynx-server 2"},
        Case{"Away", [](MachineFacts& f) { f.server->nodes[0].state = "away"; }, "warning node: n0 is away"},
        Case{"OldWorker", [](MachineFacts& f) { f.server->nodes[0].worker_version = "0.9"; },
             "warning versions: lynx-worker 0.9 on n0, lynx-server 1.0"}),
    [](const auto& info) { return info.param.name; });

TEST(Doctor, TheServersOwnPortIsNoOthers) {
  MachineFacts facts = Fit();
  facts.ports[0].taken = true;
  facts.ports.push_back({.port = 7472, .purpose = "lynx-server's live page", .taken = true});
  EXPECT_THAT(Wrong(facts), testing::ElementsAre());
  facts.ports[0].taken = false;  // the server runs on another machine, so another program listens on the page's port
  EXPECT_THAT(Wrong(facts), testing::ElementsAre("warning port: 7472 of lynx-server's live page is taken"));
}

TEST(Doctor, DaemonsThatRunKeepTheirPorts) {
  MachineFacts facts = Fit();
  facts.ports = {{.port = 7471, .purpose = "lynx-server's metrics", .taken = true, .answers = true},
                 {.port = 7473, .purpose = "lynx-agent's metrics", .taken = true, .of_server = false, .answers = true}};
  facts.server.reset();
  EXPECT_THAT(Wrong(facts), testing::ElementsAre());
  EXPECT_THAT(Diagnose(facts),
              testing::Contains(testing::Field(&Finding::found, "7473 of lynx-agent's metrics is served by one that runs")));
}

TEST(Doctor, AClockOfWhichNothingIsKnownIsNoFault) {
  MachineFacts facts = Fit();
  facts.clock_synchronized.reset();
  EXPECT_THAT(Wrong(facts), testing::ElementsAre());
}

TEST(Doctor, TheWorstCounts) {
  EXPECT_EQ(WorstOf({{Verdict::kHint}, {Verdict::kOk}}), Verdict::kHint);
  EXPECT_EQ(WorstOf({{Verdict::kWarning}, {Verdict::kProblem}, {Verdict::kOk}}), Verdict::kProblem);
  EXPECT_EQ(WorstOf({}), Verdict::kOk);
}

TEST(Doctor, KnowsThisMachineByItsAddresses) {
  for (const char* address : {"127.0.0.1:7470", "127.3.2.1:1", "localhost:7470"})
    EXPECT_TRUE(IsThisMachine(address)) << address;
  // These are addresses from ranges that are reserved for documentation, and texts that are not addresses.
  for (const char* address : {"192.0.2.1:7470", "[2001:db8::1]:7470", "", ":7470"})
    EXPECT_FALSE(IsThisMachine(address)) << address;
}

TEST(Doctor, KnowsADaemonByItsMetrics) {
  const auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildGauge().Name("lynx_agent_attached").Register(*registry).Add({});
  const int port = ServeMetrics("127.0.0.1:0", registry, {}).value();
  EXPECT_TRUE(ServesMetric(port, "lynx_agent_attached"));
  EXPECT_FALSE(ServesMetric(port, "lynx_agent"));
  EXPECT_FALSE(ServesMetric(port, "lynx_worker_attached"));
}

TEST(Doctor, LooksAtEveryPortOfThePackages) {
  std::vector<int> ports;
  for (const PortFacts& port : LookAtMachine(testing::TempDir()).ports) ports.push_back(port.port);
  EXPECT_THAT(ports, testing::ElementsAre(7470, 7471, 7472, 7473, 7474));
}

TEST(Doctor, LooksAtARealMachineAndLeavesNothing) {
  const std::string folder = testing::TempDir() + "lynx_doctor_test";
  std::filesystem::create_directories(folder);
  const MachineFacts facts = LookAtMachine(folder);
  EXPECT_TRUE(facts.disk.status.ok()) << facts.disk.status;
  EXPECT_GT(facts.disk.bytes_per_second, 0);
  EXPECT_GT(facts.memory, Bytes(0));
  EXPECT_GT(facts.cores, 0);
  EXPECT_NE(facts.open_files, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
  EXPECT_THAT(std::string(LookAtMachine(folder).disk.status.message()), HasSubstr("cannot look in " + folder));
  EXPECT_THAT(std::string(LookAtMachine("/proc").disk.status.message()), HasSubstr("cannot make a file in /proc"));
}

}  // namespace
}  // namespace lynx::cli

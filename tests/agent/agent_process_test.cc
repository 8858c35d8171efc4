// Tests lynx-agent as a process. Its measuring program computes nothing, and its server runs in the test.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <thread>

#include "lynx/v1/cluster.grpc.pb.h"
#include "node/file.h"
#include "node/process.h"
#include "proto/convert.h"
#include "tests/agent/fake_driver.h"
#include "tests/node/fake_standby.h"

namespace lynx::agent {
namespace {

using ::lynx::agent::testing::FakeDriver;

constexpr std::chrono::seconds kPatience{30};

struct Told {
  int attached = 0;
  int messages = 0;
  v1::AgentReport last;
};

class FakeCluster : public v1::Cluster::Service {
 public:
  FakeCluster() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCluster() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  void Want(const std::vector<LayerShape>& shapes) {
    std::lock_guard lock(mutex_);
    desired_.Clear();
    for (const LayerShape& shape : shapes) *desired_.add_shapes() = ToProto(shape);
    desired_.set_heartbeat_ns(100'000'000);
    ++version_;
    changed_.notify_all();
  }

  bool WaitUntil(const std::string& what, const std::function<bool(const Told&)>& holds) {
    std::unique_lock lock(mutex_);
    const bool held = changed_.wait_for(lock, kPatience, [&] { return holds(told_); });
    EXPECT_TRUE(held) << "waited in vain for: " << what;
    return held;
  }
  Told told() {
    std::lock_guard lock(mutex_);
    return told_;
  }

  grpc::Status AttachAgent(grpc::ServerContext*, grpc::ServerReaderWriter<v1::AgentDesired, v1::AgentReport>* stream) override {
    bool over = false;
    std::thread reader([&] {
      v1::AgentReport report;
      bool first = true;
      while (stream->Read(&report)) {
        std::lock_guard lock(mutex_);
        told_.attached += first ? 1 : 0;
        first = false;
        ++told_.messages;
        told_.last = report;
        changed_.notify_all();
      }
      std::lock_guard lock(mutex_);
      over = true;
      changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    int sent = 0;
    while (!over) {
      if (sent < version_) {
        const v1::AgentDesired desired = desired_;
        sent = version_;
        lock.unlock();
        stream->Write(desired);
        lock.lock();
        continue;
      }
      changed_.wait(lock);
    }
    lock.unlock();
    reader.join();
    return grpc::Status::OK;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Told told_;
  v1::AgentDesired desired_;
  int version_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

LayerShape Shape(int32_t tp) {
  return {.micro_batch = 1, .seq = 128, .hidden = 256, .heads = 4, .ffn = 1024, .vocab = 256, .tp = tp};
}

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lynx-agent-test-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    ::setenv("LYNX_FAKE_MEASURE", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << "---- log of lynx-agent\n" << Log() << "----\n";
    if (agent_.has_value()) EndAgent(SIGKILL);
    for (const pid_t pid : HangingPids()) ::kill(pid, SIGKILL);
    std::filesystem::remove_all(folder_);
  }

  void StartAgent(const std::vector<std::string>& flags = {}) {
    const UniqueFd log(::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    std::vector<std::string> argv = {
        std::string(LYNX_BINARY_DIR) + "/bin/lynx-agent", "--node", "n1", "--data-dir", folder_ + "/data", "--cores", "0"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    const auto unless_given = [&](const std::string& flag, const std::string& value) {
      if (std::find(flags.begin(), flags.end(), flag) == flags.end()) argv.insert(argv.end(), {flag, value});
    };
    unless_given("--devices", "2");
    unless_given("--server", cluster_.address());
    unless_given("--rank-binary", std::string(LYNX_BINARY_DIR) + "/bin/fake_measure");
    absl::StatusOr<Child> child = SpawnInSession(argv, {.out = log.get(), .error = log.get()});
    ASSERT_TRUE(child.ok()) << child.status();
    agent_ = *std::move(child);
  }
  ExitStatus WaitForAgent() {
    pollfd fd{.fd = agent_->pidfd.get(), .events = POLLIN, .revents = 0};
    const std::chrono::milliseconds patience = kPatience;
    EXPECT_EQ(::poll(&fd, 1, static_cast<int>(patience.count())), 1) << "lynx-agent did not end";
    const ExitStatus exit = ReapChild(agent_->pidfd).value_or(ExitStatus{.code = -1});
    agent_.reset();
    return exit;
  }
  ExitStatus EndAgent(int signal) {
    SignalProcess(agent_->pidfd, signal);
    return WaitForAgent();
  }

  void SetMode(const std::string& mode) { std::ofstream(folder_ + "/mode") << mode; }
  std::string Text(const std::string& name) const {
    const absl::StatusOr<std::string> text = ReadFile(folder_ + "/" + name);
    return text.ok() ? *text : "";
  }
  std::string Log() const { return Text("log"); }
  std::vector<pid_t> HangingPids() const {
    std::ifstream file(folder_ + "/hanging");
    std::vector<pid_t> pids;
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    return pids;
  }

  std::string folder_;
  FakeCluster cluster_;
  std::optional<Child> agent_;
};

TEST_F(AgentTest, ReportsDevicesThenItsProfileThenTheShapesThatAreWanted) {
  cluster_.Want({Shape(1), Shape(2)});
  StartAgent({"--memory", "2GiB", "--link-rate", "1Gbit"});
  cluster_.WaitUntil("both shapes", [](const Told& told) { return told.last.profile().measured_size() == 2; });
  const v1::AgentReport report = cluster_.told().last;
  EXPECT_EQ(report.node(), "n1");
  EXPECT_FALSE(report.version().empty());
  ASSERT_EQ(report.devices_size(), 2);
  EXPECT_EQ(report.devices(1).index(), 1);
  EXPECT_EQ(report.devices(1).kind(), "cpu");
  EXPECT_EQ(report.devices(1).memory_bytes(), int64_t{2} << 30);
  EXPECT_EQ(report.devices(1).cores(0), 0);
  EXPECT_EQ(report.cores().machine().size(), 32u) << "which is why nodes of one machine are known to share cores";
  const absl::StatusOr<HardwareProfile> profile = FromProto(report.profile());
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->measured[0].shape, Shape(1));
  EXPECT_EQ(profile->measured[1].shape, Shape(2));
  EXPECT_EQ(profile->flops_per_second, 1'000'000'000);
  EXPECT_EQ(profile->intra_node, (LinkCost{Nanos(25'000), 125'000'000}));
  EXPECT_EQ(profile->inter_node, profile->intra_node);
  EXPECT_EQ(report.failure(), "");

  // Heartbeats continue.
  const int messages = cluster_.told().messages;
  cluster_.WaitUntil("heartbeats", [=](const Told& told) { return told.messages >= messages + 3; });
  EXPECT_EQ(EndAgent(SIGTERM).code, 0);
}

TEST_F(AgentTest, AnUnmeasurableShapeIsAFailureWithASentenceAndTheAgentGoesOn) {
  StartAgent();
  cluster_.WaitUntil("the rates", [](const Told& told) { return told.last.has_profile(); });
  SetMode("fail");
  cluster_.Want({Shape(1)});
  cluster_.WaitUntil("the failure", [](const Told& told) { return told.last.failed_shapes_size() == 1; });
  EXPECT_EQ(*FromProto(cluster_.told().last.failed_shapes(0)), Shape(1));
  EXPECT_NE(cluster_.told().last.failure().find("the device is on fire"), std::string::npos);
  SetMode("ok");
  cluster_.Want({Shape(1), Shape(2)});
  cluster_.WaitUntil("the other shape", [](const Told& told) { return told.last.profile().measured_size() == 1; });
  EXPECT_EQ(cluster_.told().last.failed_shapes_size(), 1);
}

TEST_F(AgentTest, ARestartedAgentNeedNotMeasureAgain) {
  cluster_.Want({Shape(1)});
  StartAgent();
  cluster_.WaitUntil("the shape", [](const Told& told) { return told.last.profile().measured_size() == 1; });
  const v1::AgentReport before = cluster_.told().last;
  const std::string runs = Text("runs");
  EndAgent(SIGKILL);
  StartAgent();
  cluster_.WaitUntil("the shape again",
                     [](const Told& told) { return told.attached == 2 && told.last.profile().measured_size() == 1; });
  const v1::AgentReport after = cluster_.told().last;
  EXPECT_EQ(after.profile().SerializeAsString(), before.profile().SerializeAsString());
  EXPECT_NE(after.boot_id(), before.boot_id());
  EXPECT_EQ(Text("runs"), runs);
  // An agent that is started with other flags (here another link rate) measures again.
  EndAgent(SIGTERM);
  StartAgent({"--link-rate", "10MB"});
  cluster_.WaitUntil("the shape once more",
                     [](const Told& told) { return told.attached == 3 && told.last.profile().measured_size() == 1; });
  EXPECT_NE(Text("runs"), runs);
}

TEST_F(AgentTest, LeavingEndsAMeasurementThatRuns) {
  SetMode("hang");
  StartAgent();
  while (HangingPids().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(EndAgent(SIGTERM).code, 0);
  for (const pid_t pid : HangingPids()) EXPECT_FALSE(IdentifyProcess(pid).has_value());
}

TEST_F(AgentTest, TellsAtItsStartWhatIsWrong) {
  StartAgent({"--rank-binary", "/no/such/lynx-rank"});
  EXPECT_EQ(WaitForAgent().code, 1);
  EXPECT_NE(Log().find("there is no file /no/such/lynx-rank; give the right one with --rank-binary"), std::string::npos);
  for (const std::string flag : {"--memory", "--gpu-reserve", "--host-memory"}) {
    StartAgent({flag, "lots"});
    EXPECT_EQ(WaitForAgent().code, 2);
    EXPECT_NE(Log().find(flag + ": 'lots' is not a size"), std::string::npos) << Log();
  }

  StartAgent({"--server", cluster_.address() + ",head"});
  EXPECT_EQ(WaitForAgent().code, 2);
  EXPECT_NE(Log().find("part 2 (\"head\") has no port"), std::string::npos) << Log();
  EXPECT_NE(Log().find("--server: "), std::string::npos) << Log();

  StartAgent({"--network-domain", "row 2"});
  EXPECT_EQ(WaitForAgent().code, 2);
  EXPECT_NE(Log().find("--network-domain: 'row 2' is no place in the network"), std::string::npos) << Log();

  StartAgent({"--network-domain", "row2/rack7"});
  cluster_.WaitUntil("attached", [](const Told& told) { return told.attached == 1; });
  EXPECT_EQ(cluster_.told().last.network_domain(), "row2/rack7");
  EXPECT_TRUE(cluster_.told().last.network_rate_assumed());
  std::optional<Child> first = std::exchange(agent_, std::nullopt);
  StartAgent();
  EXPECT_EQ(WaitForAgent().code, 1);
  EXPECT_NE(Log().find("another lynx-agent uses this data directory"), std::string::npos);
  agent_ = std::move(first);
}

// Some addresses are of standbys, and at some nobody listens. Then another server becomes the leader.
TEST_F(AgentTest, FollowsTheServerThatLeads) {
  FakeStandby standby(cluster_.address());
  cluster_.Want({});
  StartAgent({"--server", "127.0.0.1:1," + standby.address() + ",nowhere.invalid:1," + cluster_.address()});
  cluster_.WaitUntil("heartbeats", [](const Told& told) { return told.messages >= 3; });
  EXPECT_EQ(standby.refused(), 1);
  EXPECT_NE(Log().find("no server answers at 127.0.0.1:1"), std::string::npos);
  EXPECT_NE(Log().find("the server at " + standby.address() + " stands by; the server at " + cluster_.address() + " leads"),
            std::string::npos);
  EXPECT_EQ(EndAgent(SIGTERM).code, 0);
  const std::string log = Log();
  EXPECT_NE(log.find("attached to the server at " + cluster_.address()), std::string::npos) << log;
  EXPECT_EQ(log.find("attached to the server at " + standby.address()), std::string::npos) << "it refused the stream";
}

// The agent finds the driver of these tests in the same way as NVIDIA's driver.
class AgentWithGpusTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    ::setenv("LD_LIBRARY_PATH", FakeDriver::Folder().c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("LD_LIBRARY_PATH");
    AgentTest::TearDown();
  }
  // Returns the devices that the agent offers, each as "kind uuid".
  static std::string Offered(const Told& told) {
    std::string text;
    for (const v1::Device& device : told.last.devices()) text += device.kind() + " " + device.uuid() + "\n";
    return text;
  }
  FakeDriver driver_{"gpus 2\n"};
};

TEST_F(AgentWithGpusTest, OffersGpusUntilTheyFailAndThenCpus) {
  StartAgent({"--devices", "auto"});
  cluster_.WaitUntil("GPUs and their speed", [](const Told& told) { return told.last.has_profile(); });
  EXPECT_EQ(Offered(cluster_.told()), "cuda GPU-fake-0\ncuda GPU-fake-1\n");
  EXPECT_NE(cluster_.told().last.devices(0).detail().find("compute 9.0"), std::string::npos);
  EXPECT_EQ(cluster_.told().last.conditions_size(), 0);
  // The fake NCCL takes 1 GiB, and 172 MiB for each route. With eight routes it takes 2,400 MiB, which is 352 MiB more than the
  // reserved 2 GiB.
  EXPECT_EQ(cluster_.told().last.profile().intra_node().latency_ns(), 4'000);
  EXPECT_EQ(cluster_.told().last.profile().inter_node().latency_ns(), 25'000);
  EXPECT_EQ(cluster_.told().last.devices(0).memory_bytes(), (kGiB * 14 - kMiB * 352).value);
  EXPECT_GT(cluster_.told().last.host_memory_bytes(), 0);

  driver_.Write("gpus 2\nxid 1 31\n");
  cluster_.WaitUntil("the Xid of a program", [](const Told& told) { return told.last.conditions_size() == 1; });
  v1::NodeCondition condition = cluster_.told().last.conditions(0);
  EXPECT_EQ(condition.kind(), "xid");
  EXPECT_EQ(condition.device(), "GPU-fake-1");
  EXPECT_GT(condition.since_unix_ns(), 0);
  EXPECT_NE(condition.message().find("GPU 1 (NVIDIA Fake) had Xid 31"), std::string::npos);
  EXPECT_EQ(cluster_.told().last.devices_size(), 2);

  driver_.Write("gpus 2\nxid 1 31\nxid 1 79\n");
  cluster_.WaitUntil("one GPU less", [](const Told& told) { return told.last.devices_size() == 1; });
  EXPECT_EQ(Offered(cluster_.told()), "cuda GPU-fake-0\n");
  EXPECT_TRUE(cluster_.told().last.conditions(0).withdrawn());

  driver_.Write("gpus 2\ngpu.0.lost 1\nxid 1 31\nxid 1 79\n");
  cluster_.WaitUntil("CPUs", [](const Told& told) { return Offered(told) == "cpu \n"; });
  cluster_.WaitUntil("the CPUs' speed", [](const Told& told) { return told.last.has_profile(); });
  EXPECT_EQ(cluster_.told().last.conditions_size(), 2) << "people are still told why";
  EXPECT_NE(Log().find("none of the GPUs can be used any more: going on with CPUs"), std::string::npos);
  EXPECT_EQ(EndAgent(SIGTERM).code, 0);
}

TEST_F(AgentWithGpusTest, GoesOnWithCpusWhereNoGpuCanBeUsedAndSaysSo) {
  driver_.Write("init 9\n");
  StartAgent({"--devices", "auto:2"});
  cluster_.WaitUntil("attached", [](const Told& told) { return told.attached == 1; });
  EXPECT_EQ(Offered(cluster_.told()), "cpu \ncpu \n");
  ASSERT_EQ(cluster_.told().last.conditions_size(), 1);
  EXPECT_EQ(cluster_.told().last.conditions(0).kind(), "no-gpus");
  EXPECT_NE(Log().find("nvmlInit_v2: Driver Not Loaded"), std::string::npos);
  EXPECT_EQ(EndAgent(SIGTERM).code, 0);

  StartAgent({"--devices", "cuda"});
  EXPECT_EQ(WaitForAgent().code, 1);
  EXPECT_NE(Log().find("--devices cuda: libnvidia-ml.so.1: nvmlInit_v2: Driver Not Loaded"), std::string::npos);
}

TEST_F(AgentWithGpusTest, DoesNotOfferASplitGpuAndSaysWhatToDo) {
  driver_.Write("gpus 2\ngpu.0.mig 1\n");
  StartAgent({"--devices", "auto"});
  cluster_.WaitUntil("the other GPU", [](const Told& told) { return told.last.devices_size() == 1; });
  EXPECT_EQ(Offered(cluster_.told()), "cuda GPU-fake-1\n");
  ASSERT_EQ(cluster_.told().last.conditions_size(), 1);
  const v1::NodeCondition condition = cluster_.told().last.conditions(0);
  EXPECT_EQ(condition.kind(), "gpu-unusable");
  EXPECT_EQ(condition.device(), "GPU-fake-0");
  EXPECT_NE(condition.message().find("GPU 0 (NVIDIA Fake) is split (MIG), and Lynx uses only whole GPUs"), std::string::npos);
  EXPECT_NE(condition.message().find("run `nvidia-smi -i 0 -mig 0`"), std::string::npos);
  EXPECT_EQ(EndAgent(SIGTERM).code, 0);

  driver_.Write("gpus 1\ngpu.0.mig 1\n");
  StartAgent({"--devices", "cuda"});
  EXPECT_EQ(WaitForAgent().code, 1);
  EXPECT_NE(Log().find("--devices cuda: GPU 0 (NVIDIA Fake) is split (MIG)"), std::string::npos);
}

TEST_F(AgentWithGpusTest, ExplicitCudaEndsTheAgentWithItsLastGpu) {
  StartAgent({"--devices", "cuda:1", "--gpu-reserve", "4GiB", "--host-memory", "8GiB"});
  cluster_.WaitUntil("the GPU", [](const Told& told) { return told.last.devices_size() == 1; });
  EXPECT_EQ(cluster_.told().last.devices(0).memory_bytes(), (kGiB * 12).value);
  EXPECT_EQ(cluster_.told().last.host_memory_bytes(), (kGiB * 8).value);
  driver_.Write("gpus 2\nxid 0 79\n");
  EXPECT_EQ(WaitForAgent().code, 1);
  EXPECT_NE(Log().find("none of the GPUs can be used any more, and --devices cuda allows nothing else"), std::string::npos);
}

}  // namespace
}  // namespace lynx::agent

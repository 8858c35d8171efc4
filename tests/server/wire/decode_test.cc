// Tests which reports about devices and conditions the server accepts from agents, and how it shows them to people.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "server/wire/messages.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

v1::AgentReport GoodReport() {
  v1::AgentReport report;
  report.set_node("n1");
  report.set_boot_id("boot");
  for (int i = 0; i < 2; ++i) {
    v1::Device& device = *report.add_devices();
    device.set_index(i);
    device.set_kind("cuda");
    device.set_model("NVIDIA H200");
    device.set_memory_bytes(int64_t{1} << 37);
    device.set_uuid("GPU-" + std::to_string(i));
    device.set_detail("compute 9.0");
  }
  report.set_host_memory_bytes(kGiB.value);
  report.set_network_domain("row2/rack7");
  report.set_network_rate_assumed(true);
  report.mutable_cores()->set_machine("machine");
  report.mutable_cores()->set_limit_group("group");
  report.mutable_cores()->set_limit_permille(1500);
  v1::NodeCondition& condition = *report.add_conditions();
  condition.set_kind("xid");
  condition.set_device("GPU-1");
  condition.set_withdrawn(true);
  condition.set_message("GPU 1 had Xid 79");
  condition.set_since_unix_ns(1'800'000'000'000'000'000);
  return report;
}

TEST(DecodeTest, DevicesAndConditionsComeAsTheyAreAndGoToPeople) {
  const AgentState state = Decode(GoodReport()).value();
  ASSERT_EQ(state.devices.size(), 2u);
  EXPECT_EQ(state.devices[1].kind, DeviceKind::kCuda);
  EXPECT_EQ(state.devices[1].uuid, "GPU-1");
  ASSERT_EQ(state.conditions.size(), 1u);
  EXPECT_EQ(state.host_memory, kGiB);
  EXPECT_EQ(state.network_domain, "row2/rack7");
  EXPECT_TRUE(state.network_rate_assumed);
  EXPECT_EQ(state.cores, (ReportedCores{"machine", "group", 1500}));
  const v1::Node shown = Encode(NodeView{.name = state.node, .devices = state.devices, .conditions = state.conditions});
  EXPECT_EQ(shown.devices(1).SerializeAsString(), GoodReport().devices(1).SerializeAsString());
  EXPECT_EQ(shown.conditions(0).SerializeAsString(), GoodReport().conditions(0).SerializeAsString());
}

TEST(DecodeTest, AQueueMayLimitItsUsers) {
  v1::Queue queue;
  queue.set_name("research");
  queue.set_weight(1);
  queue.set_no_borrowing(true);
  EXPECT_THAT(std::string(Decode(queue).status().message()), HasSubstr("is for a queue with a quota"));
  queue.set_user_quota_devices(4);
  EXPECT_EQ(Decode(queue)->user_quota, 4) << "the quota of users is one that may not be borrowed beyond";
  EXPECT_EQ(Encode(QueueView{.config = *Decode(queue)}).SerializeAsString(), queue.SerializeAsString());
  queue.set_user_quota_devices(-1);
  EXPECT_THAT(std::string(Decode(queue).status().message()), HasSubstr("queue.userQuotaDevices is -1"));
}

TEST(DecodeTest, ManagersOfAQueueAreNames) {
  v1::Queue queue;
  queue.set_name("research");
  queue.set_weight(1);
  queue.add_managers("alice");
  queue.add_managers("bob");
  EXPECT_EQ(Decode(queue)->managers, (std::vector<std::string>{"alice", "bob"}));
  EXPECT_EQ(Encode(QueueView{.config = *Decode(queue)}).SerializeAsString(), queue.SerializeAsString());
  queue.add_managers("alice");
  EXPECT_THAT(std::string(Decode(queue).status().message()), HasSubstr("queue.managers[2] is alice: must be named once"));
  queue.set_managers(2, "a,b");
  EXPECT_THAT(std::string(Decode(queue).status().message()), HasSubstr("queue.managers[2]"));
  for (int i = 0; i < 100; ++i) queue.add_managers("user" + std::to_string(i));
  EXPECT_THAT(std::string(Decode(queue).status().message()), HasSubstr("must have 0 to 100 entries"));
}

TEST(DecodeTest, BadDevicesAndConditionsAreNamed) {
  using R = v1::AgentReport;
  struct Case {
    std::function<void(R&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](R& r) { r.mutable_devices(0)->set_kind("tpu"); }, "devices[0].kind is tpu: must be cpu or cuda"},
      {[](R& r) { r.mutable_cores()->set_machine(std::string(65, 'm')); }, "cores.machine is 65 characters long"},
      {[](R& r) { r.mutable_cores()->set_limit_group(std::string(65, 'g')); }, "cores.limit_group is 65 characters long"},
      {[](R& r) { r.mutable_cores()->set_limit_permille(-1); }, "cores.limit_permille is -1"},
      {[](R& r) { r.mutable_devices(0)->set_kind("any"); }, "devices[0].kind is any: must be cpu or cuda"},
      {[](R& r) { r.mutable_devices(1)->set_kind("cpu"); }, "devices[1].kind is cpu: must be that of the node's other"},
      {[](R& r) { r.mutable_devices(0)->clear_uuid(); }, "devices[0].uuid is 0 characters long"},
      {[](R& r) { r.mutable_devices(0)->set_uuid(std::string(129, 'x')); }, "devices[0].uuid is 129 characters long"},
      {[](R& r) { r.mutable_devices(0)->set_detail(std::string(257, 'x')); }, "devices[0].detail is 257"},
      {[](R& r) { r.set_host_memory_bytes(-1); }, "host_memory_bytes is -1"},
      {[](R& r) { r.set_network_domain("row 2"); }, "network_domain: 'row 2' is no place in the network"},
      {[](R& r) { r.mutable_conditions(0)->clear_kind(); }, "conditions[0].kind is 0 characters long"},
      {[](R& r) { r.mutable_conditions(0)->set_message(std::string(4097, 'x')); }, "conditions[0].message is 4097"},
      {[](R& r) { r.mutable_conditions(0)->set_since_unix_ns(-1); }, "conditions[0].since_unix_ns is -1"},
      {[](R& r) {
         while (r.conditions_size() < 257) *r.add_conditions() = r.conditions(0);
       },
       "conditions is 257 entries long"},
  };
  for (const Case& c : cases) {
    R report = GoodReport();
    c.change(report);
    const absl::Status status = Decode(report).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace lynx::server

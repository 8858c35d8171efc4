// Tests that a struct, its description and its message have the same fields. All three are written by hand, so one of them may
// lack a field.
#include "proto/field_visitors.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lynx/v1/cluster.pb.h"
#include "lynx/v1/plan.pb.h"
#include "planner/problem/job_spec_fields.h"
#include "proto/convert.h"
#include "worker/contract/rank_config_fields.h"
#include "worker/contract/rank_report_fields.h"

namespace lynx {
namespace {

namespace pb = google::protobuf;
using Names = std::set<std::string>;

// A visitor that collects the full names of all fields that a Describe function visits, such as "train.optimizer.lr". It
// visits one element of each list.
class Collector {
 public:
  static constexpr bool kForRanks = false;

  Collector(Names& names, std::string prefix) : names_(names), prefix_(std::move(prefix)) {}

  template <class Name, class T, class... Rule>
  void Field(const Name& name, T&, const Rule&...) {
    Add(name);
  }
  template <class Name, class T, class... Rule>
  void Object(const Name& name, T& value, const Rule&...) {
    Add(name);
    Collector part(names_, prefix_ + name.text + ".");
    Describe(part, value);
  }
  template <class Name, class T, class... Rule>
  void Objects(const Name& name, std::vector<T>&, const Rule&...) {
    T element;
    Object(name, element);
  }
  template <class Name, class T>
  void OptionalObject(const Name& name, T& value) {
    Object(name, value);
  }
  template <class T>
  void Part(const char*, T& value) {
    Describe(*this, value);
  }
  // Other visitors check these kinds of values in different ways. This visitor only collects their names.
  void Number(const auto& name, auto&, FieldLimits) { Add(name); }
  void Numbers(const auto& name, auto&, FieldLimits, FieldLimits) { Add(name); }
  void Text(const auto& name, std::string&, size_t) { Add(name); }
  void Named(const auto& name, auto&) { Add(name); }
  void NamedList(const auto& name, auto&) { Add(name); }
  void NamedOrDefault(const auto& name, auto&) { Add(name); }
  void FieldOrDefault(const auto& name, auto&) { Add(name); }
  void OptionalField(const auto& name, auto&, const auto&) { Add(name); }
  void Finite(const auto& name, double&) { Add(name); }
  void Path(const auto& name, std::string&) { Add(name); }
  void Cause(const auto& name, FaultCause&) { Add(name); }
  static constexpr bool Chosen(const auto&, bool) { return true; }
  static constexpr bool Has(const auto&) { return true; }

 private:
  void Add(const auto& name) { EXPECT_TRUE(names_.insert(prefix_ + name.text).second) << prefix_ << name.text; }

  Names& names_;
  std::string prefix_;
};

template <class T>
Names DescribedNames() {
  Names names;
  Collector collector(names, "");
  T value;
  Describe(collector, value);
  return names;
}

void AddNames(const pb::Descriptor& type, const std::string& prefix, Names& names) {
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    names.insert(prefix + field.name());
    if (field.message_type() != nullptr) AddNames(*field.message_type(), prefix + field.name() + ".", names);
  }
}
Names MessageNames(const pb::Descriptor* type) {
  Names names;
  AddNames(*type, "", names);
  return names;
}

// A value that converts to every type.
struct Anything {
  template <class T>
  operator T() const;
};
template <class T, size_t... index>
constexpr bool TakesMembers(std::index_sequence<index...>) {
  return requires { T{(static_cast<void>(index), Anything())...}; };
}
// Returns the number of members of an aggregate: the largest number of values that can initialize it.
template <class T, size_t count = 0>
constexpr size_t MemberCount() {
  if constexpr (TakesMembers<T>(std::make_index_sequence<count + 1>())) {
    return MemberCount<T, count + 1>();
  } else {
    return count;
  }
}

template <class T>
size_t DescribedCount() {
  size_t count = 0;
  for (const std::string& name : DescribedNames<T>()) count += name.find('.') == std::string::npos ? 1 : 0;
  return count;
}

struct ThreeMembers {
  std::string text;
  std::vector<JobSpec> specs;
  ModelSpec model;
};

TEST(FieldVisitorsTest, MembersAreCounted) { EXPECT_EQ(MemberCount<ThreeMembers>(), 3u); }

template <class T>
void ExpectMembersDescribed() {
  EXPECT_EQ(DescribedCount<T>(), MemberCount<T>()) << typeid(T).name();
}
template <class... Structs>
void ExpectAllMembersDescribed() {
  (ExpectMembersDescribed<Structs>(), ...);
}

TEST(FieldVisitorsTest, EveryMemberIsDescribed) {
  ExpectAllMembersDescribed<JobSpec, ModelSpec, RotarySpec, MoeSpec, DataSpec, TrainSpec, OptimizerSpec, ResourceSpec,
                            ParallelSpec, RecomputeOptions, CheckpointSpec, SchedulingSpec, FailureRule>();
  ExpectAllMembersDescribed<RankReady, StepReport, LinkUse, StepSkipped, EvaluationReport, TraceReport, CheckpointReport,
                            CheckpointFailure, RankDone, RankYielded, RankFailure, CopiesNotice, NodeCheckReport>();
  EXPECT_EQ(DescribedCount<ParallelLayout>() + 1, MemberCount<ParallelLayout>());  // `custom` is written as text
}

TEST(FieldVisitorsTest, EveryFieldOfAJobIsDescribed) {
  EXPECT_EQ(DescribedNames<JobSpec>(), MessageNames(v1::JobSpec::descriptor()));
  Names layout = DescribedNames<ParallelLayout>();
  EXPECT_TRUE(layout.insert("schedule_text").second);
  EXPECT_EQ(layout, MessageNames(v1::ParallelLayout::descriptor()));
}

template <class Report>
void ExpectReportDescribed() {
  const pb::FieldDescriptor* kind = v1::RankReport::descriptor()->FindFieldByName(ReportKind(Report()).text);
  ASSERT_NE(kind, nullptr) << ReportKind(Report()).text;
  EXPECT_EQ(DescribedNames<Report>(), MessageNames(kind->message_type())) << kind->name();
}
template <class... Reports>
void ExpectReportsDescribed(const std::variant<Reports...>*) {
  EXPECT_EQ(v1::RankReport::descriptor()->FindOneofByName("report")->field_count(), int{sizeof...(Reports)});
  (ExpectReportDescribed<Reports>(), ...);
}

TEST(FieldVisitorsTest, EveryFieldOfAReportIsDescribed) { ExpectReportsDescribed(static_cast<const RankReport*>(nullptr)); }

// The specification and the layout have descriptions of their own, and `yield` is for the daemon.
TEST(FieldVisitorsTest, EveryFieldOfAnAssignmentIsDescribed) {
  Names names;
  for (const std::string& name : MessageNames(v1::RankAssignment::descriptor())) {
    const std::string first = name.substr(0, name.find('.'));
    if (first != "spec" && first != "layout" && first != "program" && first != "yield") names.insert(name);
  }
  EXPECT_EQ(DescribedNames<RankConfig>(), names);
  EXPECT_EQ(DescribedCount<RankDevice>(), MemberCount<RankDevice>());
  EXPECT_EQ(DescribedCount<PeerAddress>(), MemberCount<PeerAddress>());
}

// Returns the name of an enum value as messages have it, such as "FULL_KEEP_COLLECTIVES".
std::string NameInMessages(std::string name) {
  if (name == "1f1b") name = "one-forward-one-backward";
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

// Expects that every value of the C++ enum has the same number as the value with the same name in messages. In messages there
// must be no other values, except an unspecified one.
template <class Enum>
void ExpectSameNumbers(const std::string& prefix, const pb::EnumDescriptor* type) {
  Names known;
  for (size_t i = 0; i < kEnumNames<Enum>.size(); ++i) {
    const Enum value = static_cast<Enum>(i);
    const std::string name = prefix + "_" + NameInMessages(kEnumNames<Enum>[i]);
    known.insert(name);
    const pb::EnumValueDescriptor* found = type->FindValueByName(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->number(), NumberOf(value)) << name;
    Enum back;
    EXPECT_TRUE(EnumOfNumber(found->number(), back) && back == value) << name;
  }
  Enum other;
  if (!EnumOfNumber(0, other)) known.insert(prefix + "_UNSPECIFIED");
  for (int i = 0; i < type->value_count(); ++i) EXPECT_TRUE(known.contains(type->value(i)->name())) << type->value(i)->name();
}

TEST(FieldVisitorsTest, EnumsHaveTheNumbersOfTheirNames) {
  ExpectSameNumbers<ModelFamily>("MODEL_FAMILY", v1::ModelFamily_descriptor());
  ExpectSameNumbers<AttentionKernel>("ATTENTION_KERNEL", v1::AttentionKernel_descriptor());
  ExpectSameNumbers<DataType>("DATA_TYPE", v1::DataType_descriptor());
  ExpectSameNumbers<DropoutMasks>("DROPOUT_MASKS", v1::DropoutMasks_descriptor());
  ExpectSameNumbers<RopeScaling>("ROPE_SCALING", v1::RopeScaling_descriptor());
  ExpectSameNumbers<DataKind>("DATA_KIND", v1::DataKind_descriptor());
  ExpectSameNumbers<LrSchedule>("LR_SCHEDULE", v1::LrSchedule_descriptor());
  ExpectSameNumbers<NonFinitePolicy>("NON_FINITE_POLICY", v1::NonFinitePolicy_descriptor());
  ExpectSameNumbers<DeviceKind>("DEVICE_KIND", v1::DeviceKind_descriptor());
  ExpectSameNumbers<Choice>("CHOICE", v1::Choice_descriptor());
  ExpectSameNumbers<ScheduleKind>("SCHEDULE_KIND", v1::ScheduleKind_descriptor());
  ExpectSameNumbers<ZeroStage>("ZERO_STAGE", v1::ZeroStage_descriptor());
  ExpectSameNumbers<PartitionMethod>("PARTITION_METHOD", v1::PartitionMethod_descriptor());
  ExpectSameNumbers<RecomputeMode>("RECOMPUTE_MODE", v1::RecomputeMode_descriptor());
  ExpectSameNumbers<FailureAction>("FAILURE_ACTION", v1::FailureAction_descriptor());
  ExpectSameNumbers<NodeCheckPolicy>("NODE_CHECK_POLICY", v1::NodeCheckPolicy_descriptor());
  ExpectSameNumbers<FaultCause>("FAULT_CAUSE", v1::FaultCause_descriptor());
}

TEST(FieldVisitorsTest, DefaultsOfLaterFieldsAreLeftOut) {
  const v1::JobSpec message = ToProto(JobSpec());
  EXPECT_FALSE(message.has_scheduling());
  EXPECT_FALSE(message.model().has_rotary());
  EXPECT_FALSE(message.model().has_moe());
  EXPECT_FALSE(message.model().has_latent());
  EXPECT_EQ(ToProto(ParallelLayout()).ep(), 0);
  EXPECT_EQ(message.model().norm_epsilon(), 0);
  EXPECT_EQ(message.train().eval_batches(), JobSpec().train.eval_batches);
  const absl::StatusOr<ModelSpec> model = ModelFromProto(v1::ModelSpec(), "model");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->norm_epsilon, ModelSpec().norm_epsilon);
  EXPECT_EQ(model->rotary, RotarySpec());
  EXPECT_EQ(model->moe, MoeSpec());
  EXPECT_EQ(model->latent, LatentSpec());
}

// The wording of errors must not change. The choices are listed in the order of their numbers.
TEST(FieldVisitorsTest, UnknownNumbersNameFieldAndChoices) {
  v1::ModelSpec model;
  model.mutable_rotary()->set_scaling(static_cast<v1::RopeScaling>(9));
  EXPECT_EQ(ModelFromProto(model, "plan.model").status().message(),
            "plan.model.rotary.scaling is 9: must be one of none (0), linear (1), dynamic (2), llama3 (3), yarn (4)");
  model.clear_rotary();
  model.set_dropout_masks(static_cast<v1::DropoutMasks>(2));
  EXPECT_EQ(ModelFromProto(model, "model").status().message(),
            "model.dropoutMasks is 2: must be one of regenerated (0), stored (1)");
  v1::ParallelLayout layout = ToProto(ParallelLayout());
  layout.set_schedule(static_cast<v1::ScheduleKind>(8));
  EXPECT_EQ(FromProto(layout).status().message(),
            "layout.schedule is 8: must be one of gpipe (1), 1f1b (2), interleaved (3), zero-bubble (4), chimera (5), "
            "zero-bubble-v (6), custom (7)");
  layout.set_schedule(v1::SCHEDULE_KIND_AUTO);
  EXPECT_EQ(FromProto(layout)->schedule, ScheduleKind::kOneForwardOneBackward);
  v1::JobSpec spec = ToProto(JobSpec());
  spec.mutable_recompute_options()->add_forbidden(v1::RECOMPUTE_MODE_FULL);
  spec.mutable_recompute_options()->add_forbidden(v1::RECOMPUTE_MODE_UNSPECIFIED);
  EXPECT_EQ(
      FromProto(spec).status().message(),
      "recomputeOptions.forbid[1] is 0: must be one of auto (1), none (2), full (3), full-keep-collectives (4), selective "
      "(5), uniform (6), block (7), balanced (8), no-overlap (9), heu (10), opt (11)");
}

}  // namespace
}  // namespace lynx

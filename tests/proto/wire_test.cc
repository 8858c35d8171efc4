// Tests what programs of different releases must agree on: the numbers, types and names of all fields, and the services'
// methods. Programs of different releases meet while a cluster is upgraded. No test has programs that were really built from an
// earlier release.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lynx/v1/admin.pb.h"
#include "lynx/v1/cluster.pb.h"
#include "lynx/v1/jobs.pb.h"
#include "lynx/v1/plan.pb.h"
#include "lynx/v1/witness.pb.h"
#include "tests/golden/golden.h"

namespace lynx {
namespace {

namespace pb = google::protobuf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kGolden[] = "wire.txt";
constexpr char kFolder[] = LYNX_SOURCE_DIR "/proto";
constexpr int kMaxReserved = 1000;  // reserved numbers are written one by one, up to this number

// Returns the line of a field. A line has three parts: an owner (such as a message), the number of a field of the owner (or a
// method), and the meaning of the field.
std::string FieldLine(const pb::FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = field.message_type()->full_name();
  if (field.enum_type() != nullptr) type = field.enum_type()->full_name();
  std::string label;
  if (field.is_repeated()) {
    label = field.is_packed() ? "repeated packed " : "repeated ";
  } else if (field.real_containing_oneof() != nullptr) {
    label = absl::StrCat("one of ", field.real_containing_oneof()->name(), " ");
  } else if (field.message_type() == nullptr && field.has_presence()) {
    label = "optional ";
  }
  return absl::StrCat(field.containing_type()->full_name(), " ", field.number(), " ", field.name(), " ", label, type);
}

void AddEnum(const pb::EnumDescriptor& type, std::vector<std::string>& lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines.push_back(absl::StrCat(type.full_name(), " ", type.value(i)->number(), " ", type.value(i)->name()));
  }
}

void AddMessage(const pb::Descriptor& type, std::vector<std::string>& lines) {
  std::map<int, std::string> by_number;
  for (int i = 0; i < type.field_count(); ++i) by_number[type.field(i)->number()] = FieldLine(*type.field(i));
  for (int i = 0; i < type.reserved_range_count(); ++i) {
    const auto& range = *type.reserved_range(i);  // the end is not a part of the range
    for (int number = range.start; number < std::min(range.end, range.start + kMaxReserved); ++number) {
      by_number[number] = absl::StrCat(type.full_name(), " ", number, " reserved");
    }
  }
  for (auto& [number, line] : by_number) lines.push_back(std::move(line));
  for (int i = 0; i < type.nested_type_count(); ++i) AddMessage(*type.nested_type(i), lines);
  for (int i = 0; i < type.enum_type_count(); ++i) AddEnum(*type.enum_type(i), lines);
}

void AddService(const pb::ServiceDescriptor& service, std::vector<std::string>& lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const pb::MethodDescriptor& method = *service.method(i);
    lines.push_back(absl::StrCat(service.full_name(), " ", method.name(), " ", method.client_streaming() ? "stream " : "",
                                 method.input_type()->full_name(), " to ", method.server_streaming() ? "stream " : "",
                                 method.output_type()->full_name()));
  }
}

// Returns all files of proto/lynx/v1, sorted by name.
std::vector<const pb::FileDescriptor*> Files() {
  // The files are named here so that the linker includes them.
  const std::vector<const pb::FileDescriptor*> linked = {
      v1::AuditRecord::descriptor()->file(), v1::Device::descriptor()->file(), v1::Job::descriptor()->file(),
      v1::Plan::descriptor()->file(), v1::WhenRenewedRequest::descriptor()->file()};
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat(kFolder, "/lynx/v1"))) {
    if (entry.path().extension() == ".proto") names.push_back(std::filesystem::relative(entry.path(), kFolder).string());
  }
  std::sort(names.begin(), names.end());
  std::vector<const pb::FileDescriptor*> files;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(linked.begin(), linked.end(), [&](const pb::FileDescriptor* file) { return file->name() == name; });
    if (found == linked.end()) {
      ADD_FAILURE() << name << " is not looked at: name one of its messages in Files()";
    } else {
      files.push_back(*found);
    }
  }
  return files;
}

std::vector<std::string> WireLines() {
  std::vector<std::string> lines;
  for (const pb::FileDescriptor* file : Files()) {
    for (int i = 0; i < file->service_count(); ++i) AddService(*file->service(i), lines);
    for (int i = 0; i < file->message_type_count(); ++i) AddMessage(*file->message_type(i), lines);
    for (int i = 0; i < file->enum_type_count(); ++i) AddEnum(*file->enum_type(i), lines);
  }
  return lines;
}

std::vector<std::string> GoldenLines() {
  std::ifstream file(absl::StrCat(LYNX_SOURCE_DIR, "/tests/golden/", kGolden));
  std::stringstream text;
  text << file.rdbuf();
  return absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
}

// Returns a map from "owner number" to the meaning of this number.
std::map<std::string, std::string> ByKey(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> found;
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    found[absl::StrCat(words[0], " ", words[1])] = words.size() == 3 ? words[2] : "";
  }
  return found;
}

// Returns what programs that were built with `before` would not find in `now`, one sentence for each. Lines that are only in
// `now` are new and do no harm.
std::vector<std::string> Broken(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  const std::map<std::string, std::string> present = ByKey(now);
  std::vector<std::string> found;
  for (const auto& [key, was] : ByKey(before)) {
    const auto is = present.find(key);
    if (is == present.end()) {
      found.push_back(
          absl::StrCat(key, " was '", was, "' and is gone: reserve its number and name, which are never used again"));
    } else if (is->second == "reserved") {
      if (was != "reserved")
        found.push_back(absl::StrCat(key, " was '", was, "' and is reserved now, while programs may still send or expect it"));
    } else if (is->second != was) {
      found.push_back(absl::StrCat(key, " was '", was, "' and is '", is->second,
                                   "': reserve the number, and give what is new one of its own"));
    }
  }
  return found;
}

bool Rewrites() {
  const char* update = std::getenv("UPDATE_GOLDEN");
  return update != nullptr && std::string(update) == "1";
}

TEST(ProtoWireTest, NothingIsTakenFromProgramsOfEarlierReleases) {
  if (Rewrites()) return;  // people review the difference before they commit it
  const std::vector<std::string> broken = Broken(GoldenLines(), WireLines());
  EXPECT_THAT(broken, IsEmpty()) << absl::StrJoin(broken, "\n")
                                 << "\nA server works with nodes of its own minor version and of the one before it "
                                    "(docs/operating.md, Upgrade), and a field's number "
                                    "is never used again. What the minor version before does without may go, reserved: then "
                                    "run this with UPDATE_GOLDEN=1.";
}

TEST(ProtoWireTest, TheGoldenTextHasWhatIsNew) { ExpectGolden(kGolden, absl::StrCat(absl::StrJoin(WireLines(), "\n"), "\n")); }

// Message -> the first and the last of the field numbers that were skipped when the message was defined. No field ever had
// them.
const std::map<std::string, std::pair<int, int>> kLeftOut = {{"lynx.v1.WorkerReport", {11, 19}},
                                                             {"lynx.v1.WorkerDesired", {5, 19}}};

void ExpectNoGaps(const pb::Descriptor& type) {
  const auto left_out = kLeftOut.find(type.full_name());
  int highest = 0;
  for (int i = 0; i < type.field_count(); ++i) highest = std::max(highest, type.field(i)->number());
  for (int number = 1; number < highest; ++number) {
    if (left_out != kLeftOut.end() && number >= left_out->second.first && number <= left_out->second.second) continue;
    EXPECT_TRUE(type.FindFieldByNumber(number) != nullptr || type.IsReservedNumber(number))
        << type.full_name() << " " << number
        << " is neither a field nor reserved: where a field was taken away its number and name are reserved";
  }
  for (int i = 0; i < type.nested_type_count(); ++i) ExpectNoGaps(*type.nested_type(i));
}

// If a field is removed and the golden text is written again, the field's number must not be forgotten: it must be reserved.
TEST(ProtoWireTest, NumbersBelowTheHighestAreUsedOrReserved) {
  for (const pb::FileDescriptor* file : Files()) {
    for (int i = 0; i < file->message_type_count(); ++i) ExpectNoGaps(*file->message_type(i));
  }
}

TEST(ProtoWireTest, WhatBreaksIsFound) {
  const std::vector<std::string> before = {"lynx.v1.A 1 name string", "lynx.v1.A 2 ranks repeated packed int32",
                                           "lynx.v1.S Get lynx.v1.A to lynx.v1.A", "lynx.v1.E 0 E_NONE",
                                           "lynx.v1.A 3 reserved"};
  EXPECT_THAT(Broken(before, before), IsEmpty());
  std::vector<std::string> now = before;
  now.push_back("lynx.v1.A 4 more string");
  now.push_back("lynx.v1.S Put lynx.v1.A to lynx.v1.A");
  EXPECT_THAT(Broken(before, now), IsEmpty()) << "fields and methods may be added";
  const auto changed = [&](size_t line, const std::string& text) {
    now = before;
    now[line] = text;
    return Broken(before, now);
  };
  EXPECT_THAT(changed(0, "lynx.v1.A 5 name string"),
              ElementsAre(HasSubstr("lynx.v1.A 1 was 'name string' and is gone: reserve")));
  EXPECT_THAT(changed(0, "lynx.v1.A 1 name bytes"),
              ElementsAre(HasSubstr("'name string' and is 'name bytes': reserve the number")));
  EXPECT_THAT(changed(0, "lynx.v1.A 1 reserved"), ElementsAre(HasSubstr("is reserved now")));
  EXPECT_THAT(changed(1, "lynx.v1.A 2 ranks int32"), ElementsAre(HasSubstr("lynx.v1.A 2 was")));
  EXPECT_THAT(changed(2, "lynx.v1.S Get lynx.v1.A to stream lynx.v1.A"), ElementsAre(HasSubstr("lynx.v1.S Get was")));
  EXPECT_THAT(changed(3, "lynx.v1.E 1 E_NONE"), ElementsAre(HasSubstr("lynx.v1.E 0 was")));
  EXPECT_THAT(changed(4, "lynx.v1.A 3 again string"), ElementsAre(HasSubstr("'reserved' and is 'again string'")));
}

}  // namespace
}  // namespace lynx

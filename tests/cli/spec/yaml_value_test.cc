#include "cli/spec/yaml_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/spec/yaml_record.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<YamlValue> value = ParseYaml(text, "f.yaml");
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(value.status().message());
}

TEST(YamlValue, RemembersWhereEverythingStands) {
  const absl::StatusOr<YamlValue> root = ParseYaml("a: 1\nb:\n  - x\n  - {c: \"q: 2\"}\nn:\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  ASSERT_TRUE(root->IsMap());
  EXPECT_EQ(root->entries.size(), 3u);
  EXPECT_EQ(root->Find("a")->scalar, "1");
  EXPECT_EQ(root->Find("z"), nullptr);
  const YamlValue& list = *root->Find("b");
  ASSERT_TRUE(list.IsList());
  EXPECT_EQ(list.items[0].scalar, "x");
  EXPECT_EQ(list.items[0].line, 3);
  EXPECT_EQ(list.items[0].column, 5);
  EXPECT_EQ(list.items[1].Find("c")->scalar, "q: 2");
  EXPECT_EQ(list.items[1].Find("c")->line, 4);
  EXPECT_EQ(root->Find("n")->kind, YamlKind::kNull);
}

TEST(YamlValue, EmptyTextIsNull) {
  for (const char* text : {"", "# only a comment\n", "---\n"}) {
    const absl::StatusOr<YamlValue> root = ParseYaml(text, "f.yaml");
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(root->kind, YamlKind::kNull);
  }
}

TEST(YamlValue, RefusesWhatIsHardToRead) {
  EXPECT_THAT(ErrorOf("a: [1"), HasSubstr("f.yaml:1:"));
  EXPECT_THAT(ErrorOf("a: &x 1\nb: *x\n"), HasSubstr("anchors"));
  EXPECT_THAT(ErrorOf("a: *x\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(ErrorOf("a: !!int 3\n"), HasSubstr("f.yaml:1:4: not valid YAML: tags"));
  EXPECT_THAT(ErrorOf("? [a, b]\n: 1\n"), HasSubstr("field names must be plain words"));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2\n---\n"), HasSubstr("holds 3 documents"));
  // With these texts, the parser would make no progress.
  for (const char* text : {"# a comment\n, a: 1\n", ",", "---\n, a\n"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("not valid YAML: nothing can begin with this character")) << text;
  }
  EXPECT_THAT(ErrorOf("# a comment\n, a: 1\n"), HasSubstr(":2:1: "));
  EXPECT_THAT(ErrorOf("a: " + std::string(40, '[') + std::string(40, ']')), HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(ErrorOf(std::string(1 << 20, ' ') + "a: 1"), HasSubstr("at most 1048576"));
  EXPECT_THAT(ErrorOf(std::string("a: \0b", 5)), HasSubstr("f.yaml: holds a zero byte"));
  EXPECT_THAT(ErrorOf("a: 1\nb: caf\xe9\n"), HasSubstr("f.yaml:2: byte 12 of the file is not UTF-8"));
}

struct Point {
  std::string x, y;
  std::vector<Point> more;
};

const std::vector<Field<Point>>& PointFields() {
  static const auto& fields = *new std::vector<Field<Point>>{
      {"x", "across", true,
       [](const std::string& text, Point& p) {
         p.x = text;
         return text == "bad" ? absl::InvalidArgumentError("expected good") : absl::OkStatus();
       },
       [](const Point& p) { return p.x; }},
      {"deep.y", "up", false,
       [](const std::string& text, Point& p) {
         p.y = text;
         return absl::OkStatus();
       },
       [](const Point& p) { return p.y; }},
      {"more", "points", false, nullptr, nullptr,
       [](YamlReader& reader, const YamlValue& value, const std::string& path, Point& p) {
         return reader.ReadList(value, path, 1, PointFields(), p.more);
       }},
  };
  return fields;
}

absl::StatusOr<Point> ReadPoint(const std::string& text, YamlReader& reader) {
  const absl::StatusOr<YamlValue> root = ParseYaml(text, "f.yaml");
  EXPECT_TRUE(root.ok());
  Point point;
  const absl::Status status = reader.Read(*root, "", PointFields(), point);
  if (!status.ok()) return status;
  return point;
}

TEST(YamlRecord, ReadsRecordsInsideRecords) {
  YamlReader reader("f.yaml", YamlReader::Scalars::kSourced);
  const auto point =
      ReadPoint("x: 1\ndeep: {y: 2}\nmore:\n  - x: {value: 3, source: a book}\n  - {x: 4, deep: {y: 5}}\n", reader);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->y, "2");
  ASSERT_EQ(point->more.size(), 2u);
  EXPECT_EQ(point->more[0].x, "3");
  EXPECT_EQ(point->more[1].y, "5");
  ASSERT_EQ(reader.sources().size(), 5u);
  EXPECT_EQ(reader.sources()[2].path, "more[0].x");
  EXPECT_EQ(reader.sources()[2].value, "3");
  EXPECT_EQ(reader.sources()[2].source, "a book");
  EXPECT_EQ(reader.sources()[4].source, "");
  EXPECT_EQ(reader.PlaceOf("more[1].deep.y"), "f.yaml:5:22");
  EXPECT_EQ(reader.PlaceOf("more[2].x"), "f.yaml");
}

TEST(YamlRecord, ErrorsNamePlaceFieldAndRemedy) {
  const auto error = [](const std::string& text, YamlReader::Scalars scalars = YamlReader::Scalars::kPlain) {
    YamlReader reader("f.yaml", scalars);
    return std::string(ReadPoint(text, reader).status().message());
  };
  EXPECT_EQ(error("more:\n  - x: bad\n"), "f.yaml:2:8: more[0].x: expected good");
  EXPECT_EQ(error("x: 1\nmore:\n  - deep: {z: 1}\n"), "f.yaml:3:12: more[0].deep.z: unknown field; did you mean 'y'?");
  EXPECT_EQ(error("x: 1\nmore:\n  - {}\n"), "f.yaml:3:5: more[0].x: missing; it is required (across)");
  EXPECT_EQ(error("deep: {}\n"), "f.yaml: x: missing; it is required (across)");
  EXPECT_EQ(error("x: 1\nx: 2\n"), "f.yaml:2:1: x: given twice, the first at f.yaml:1:4; keep one");
  EXPECT_EQ(error("x: 1\nmore: []\n"), "f.yaml:2:7: more: has 0 items; give at least 1");
  EXPECT_EQ(error("x: 1\nmore: 3\n"), "f.yaml:2:7: more: expected a list ('- ' before each item), found '3'");
  EXPECT_EQ(error("x: 1\nmore: [3]\n"), "f.yaml:2:8: more[0]: expected fields: x, deep, more, found '3'");
  EXPECT_EQ(error("x: {value: 1, source: s}\n"), "f.yaml:1:4: x: expected one value (across), found fields");
  EXPECT_EQ(error("x: {value: 1}\n", YamlReader::Scalars::kSourced),
            "f.yaml:1:4: x: expected one value, or {value: ..., source: \"where it comes from\"}");
  EXPECT_EQ(error("x:\n  value: bad\n  source: s\n", YamlReader::Scalars::kSourced), "f.yaml:2:10: x: expected good");
  EXPECT_EQ(error("~: 1\n"), "f.yaml:1:1: a field has no name");
}

TEST(YamlRecord, PrintsWhatItReads) {
  EXPECT_EQ(RecordText(PointFields(), Point{"1", "2", {}}), "x: 1\ndeep:\n  y: 2\n");
  EXPECT_EQ(ReferenceRows(PointFields(), Point{"", "7", {}}, "p."),
            "| `p.x` | required | across |\n| `p.deep.y` | `7` | up |\n| `p.more` |  | points |\n");
}

}  // namespace
}  // namespace lynx::cli

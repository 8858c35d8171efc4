// Tests mistakes that people make in YAML files. Each message must name the place, the mistake and what to write instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/spec/cluster_file.h"
#include "cli/spec/job_file.h"

namespace lynx::cli {
namespace {

constexpr char kGood[] = R"(apiVersion: lynx/v1
kind: TrainingJob
name: tiny
model:
  layers: 4
  hidden: 64
  heads: 4
  seq: 32
data:
  kind: text
  path: corpus.txt
train:
  steps: 10
  globalBatch: 8
resources:
  ranks: 2
)";

struct Mistake {
  std::string name, from, to, expected;
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }
std::string NameOf(const testing::TestParamInfo<Mistake>& info) { return info.param.name; }

std::string Edited(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class JobFileMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(JobFileMistakes, NamePlaceMistakeAndRemedy) {
  const std::string text = Edited(kGood, GetParam().from, GetParam().to);
  const auto spec = ParseJobFile(text, "j.yaml", "/data");
  ASSERT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(std::string(spec.status().message()), GetParam().expected) << text;
}

const std::string kNoBreak = "\xc2\xa0", kOpen = "\xe2\x80\x9c", kClose = "\xe2\x80\x9d";

INSTANTIATE_TEST_SUITE_P(
    Yaml, JobFileMistakes,
    testing::Values(
        Mistake{"QuoteNotClosed", "name: tiny", "name: \"tiny",
                "j.yaml:3:7: not valid YAML: the quote that opens here is not closed; write another \" at the end of "
                "the value"},
        Mistake{"SingleQuoteNotClosed", "path: corpus.txt", "path: 'corpus.txt",
                "j.yaml:11:9: not valid YAML: the quote that opens here is not closed; write another ' at the end of "
                "the value"},
        Mistake{"QuoteNotClosedBeforeAnother", "name: tiny\nmodel:", "name: \"tiny\nrecompute: \"full\"\nmodel:",
                "j.yaml:3:7: not valid YAML: the quote that opens here is not closed in its line; write another \" "
                "at the end of the value"},
        Mistake{"QuoteNotClosedInBrackets", "data:\n  kind: text\n  path: corpus.txt", "data: {kind: \"text, path: corpus.txt}",
                "j.yaml:9:14: not valid YAML: the quote that opens here is not closed; write another \" "
                "at the end of the value"},
        Mistake{"TextAfterQuote", "path: corpus.txt", "path: \"corpus\".txt",
                "j.yaml:11:17: not valid YAML: text follows the closing quote; put the quotes around the whole value"},
        Mistake{"Tab", "  hidden: 64", "\thidden: 64",
                "j.yaml:6:1: not valid YAML: a tab in the indentation, where YAML takes blanks alone; write two "
                "blanks in place of each tab"},
        Mistake{"TabAfterBlanks", "  hidden: 64", "  \thidden: 64",
                "j.yaml:6:3: not valid YAML: a tab in the indentation, where YAML takes blanks alone; write two "
                "blanks in place of each tab"},
        Mistake{"TabOfAWholeSection", "  layers: 4\n  hidden: 64\n  heads: 4\n  seq: 32",
                "\tlayers: 4\n\thidden: 64\n\theads: 4\n\tseq: 32",
                "j.yaml:5:1: not valid YAML: a tab in the indentation, where YAML takes blanks alone; write two "
                "blanks in place of each tab"},
        Mistake{"NoBreakIndentation", "  hidden: 64", kNoBreak + kNoBreak + "hidden: 64",
                "j.yaml:6:1: not valid YAML: a no-break space (U+00A0), which YAML takes for a letter; write a "
                "blank, or quotes around the value where it belongs there"},
        Mistake{"NoBreakIndentationOfAll", "  layers: 4", kNoBreak + kNoBreak + "layers: 4",
                "j.yaml:5:1: not valid YAML: a no-break space (U+00A0), which YAML takes for a letter; write a "
                "blank, or quotes around the value where it belongs there"},
        Mistake{"NoBreakAfterColon", "hidden: 64", "hidden:" + kNoBreak + "64",
                "j.yaml:6:10: not valid YAML: a no-break space (U+00A0), which YAML takes for a letter; write a "
                "blank, or quotes around the value where it belongs there"},
        Mistake{"NoBreakInValue", "hidden: 64", "hidden: 64" + kNoBreak,
                "j.yaml:6:13: not valid YAML: a no-break space (U+00A0), which YAML takes for a letter; write a "
                "blank, or quotes around the value where it belongs there"},
        Mistake{"NoBreakBeforeComment", "hidden: 64", "hidden: 64" + kNoBreak + "# size",
                "j.yaml:6:13: not valid YAML: a no-break space (U+00A0), which YAML takes for a letter; write a "
                "blank, or quotes around the value where it belongs there"},
        Mistake{"ZeroWidth", "hidden: 64",
                "hidden: \xe2\x80\x8b"
                "64",
                "j.yaml:6:11: not valid YAML: a zero-width space (U+200B), which YAML takes for a letter; write a "
                "blank, or quotes around the value where it belongs there"},
        Mistake{"TypographicQuotes", "name: tiny", "name: " + kOpen + "tiny" + kClose,
                "j.yaml:3:7: not valid YAML: a typographic quote, which YAML takes for a letter; write \" or '"},
        Mistake{"TypographicQuotesInBrackets", "data:\n  kind: text\n  path: corpus.txt",
                "data: {kind: text, path: " + kOpen + "a b" + kClose + "}",
                "j.yaml:9:26: not valid YAML: a typographic quote, which YAML takes for a letter; write \" or '"},
        Mistake{"NoBlankAfterFirstColon", "layers: 4", "layers:4",
                "j.yaml:5:9: not valid YAML: no blank after the colon; write 'layers: 4'"},
        Mistake{"NoBlankAfterMiddleColon", "hidden: 64", "hidden:64",
                "j.yaml:6:9: not valid YAML: no blank after the colon; write 'hidden: 64'"},
        Mistake{"NoBlankAfterLastColon", "seq: 32", "seq:32",
                "j.yaml:8:6: not valid YAML: no blank after the colon; write 'seq: 32'"},
        Mistake{"NoBlankAfterOnlyColon", "  ranks: 2", "  ranks:2",
                "j.yaml:16:3: resources: expected fields: ranks, activationMemoryPerRank, device, found 'ranks:2'; a "
                "blank follows the colon: write 'ranks: 2'"},
        Mistake{"NoBlankInBrackets", "resources:\n  ranks: 2", "resources: {ranks:2}",
                "j.yaml:15:13: resources.ranks:2: unknown field; a blank follows the colon: write 'ranks: 2'"},
        Mistake{"NoBlankAtTheTop", "name: tiny", "name:tiny",
                "j.yaml:3:5: not valid YAML: no blank after the colon; write 'name: tiny'"},
        Mistake{"NoBlankInTheFirstLine", "apiVersion: lynx/v1", "apiVersion:lynx/v1",
                "j.yaml:1:11: not valid YAML: no blank after the colon; write 'apiVersion: lynx/v1'"},
        Mistake{"NoColon", "hidden: 64", "hidden 64", "j.yaml:6:3: not valid YAML: no colon in this line; write 'hidden: 64'"},
        Mistake{"NoColonLast", "seq: 32", "seq 32", "j.yaml:8:3: not valid YAML: no colon in this line; write 'seq: 32'"},
        Mistake{"EqualsSign", "hidden: 64", "hidden = 64",
                "j.yaml:6:3: not valid YAML: no colon in this line; write 'hidden: 64'"},
        Mistake{"WideColon", "hidden: 64", "hidden\xef\xbc\x9a 64",
                "j.yaml:6:9: not valid YAML: a full-width colon (U+FF1A); write ':' and a blank"},
        Mistake{"SlashComment",
                "model:", "// the model\nmodel:", "j.yaml:4:1: not valid YAML: a comment begins with '#', not with '//'"},
        Mistake{"TooFarRight", "  hidden: 64", "    hidden: 64",
                "j.yaml:6:5: not valid YAML: begins further to the right than line 5, which has a value already; "
                "begin both in the same column"},
        Mistake{"TooFarLeft", "  hidden: 64", " hidden: 64",
                "j.yaml:6:2: not valid YAML: begins in column 2, but the lines above it in column 1 or 3; fields of "
                "one section begin in the same column"},
        Mistake{"NotIndented", "  hidden: 64", "hidden: 64",
                "j.yaml:7:3: not valid YAML: begins further to the right than line 6, which has a value already; "
                "begin both in the same column"},
        Mistake{"SectionNotIndented", "  steps: 10\n  globalBatch: 8", "steps: 10\nglobalBatch: 8",
                "j.yaml:13:1: train: expected fields: steps, globalBatch, microBatch, optimizer, schedule, "
                "warmupSteps, minLr, seed, onNonFinite, evalEvery, evalBatches, found nothing; write them on the "
                "lines below, two blanks further to the right than the section's name"},
        Mistake{"SectionInASection", "train:\n  steps: 10\n  globalBatch: 8", "  train:\n    steps: 10\n    globalBatch: 8",
                "j.yaml:12:3: data.train: unknown field of 'data'; begin 'train' in the column in which 'data' begins"},
        Mistake{"FieldOfAnotherSection", "  seq: 32", "  seq: 32\n  globalBatch: 8",
                "j.yaml:9:3: model.globalBatch: unknown field here; it belongs to 'train': write it there, further "
                "to the right than the section's name"},
        Mistake{"DottedName", "resources:\n  ranks: 2", "resources.ranks: 2",
                "j.yaml:15:1: resources.ranks: unknown field; write 'resources:' and, on the line below it and two "
                "blanks further to the right, 'ranks: VALUE'"},
        Mistake{"ListForASection", "  steps: 10\n  globalBatch: 8", "  - steps: 10\n  - globalBatch: 8",
                "j.yaml:13:3: train: expected fields: steps, globalBatch, microBatch, optimizer, schedule, warmupSteps, "
                "minLr, seed, onNonFinite, evalEvery, evalBatches, found a list; write them without '- '"},
        Mistake{"ListInTheLine", "name: tiny", "name: - tiny",
                "j.yaml:3:7: not valid YAML: a list cannot begin behind a field's name; begin each '- ' on a line of "
                "its own below it"},
        Mistake{"ListForAValue", "steps: 10", "steps: [10, 20]",
                "j.yaml:13:10: train.steps: expected one value (optimizer steps), found a list"},
        Mistake{"NothingForAValue", "steps: 10",
                "steps:", "j.yaml:14:3: train.steps: expected one value (optimizer steps), found nothing"},
        Mistake{"FieldsForAValue", "steps: 10", "steps:\n    count: 10",
                "j.yaml:14:5: train.steps: expected one value (optimizer steps), found fields"},
        Mistake{"BracketNotClosed", "resources:\n  ranks: 2", "resources: {ranks: 2",
                "j.yaml:15:12: not valid YAML: the '{' here is not closed; write '}' after its last value"},
        Mistake{"BracketNotClosedAbove", "data:\n  kind: text\n  path: corpus.txt", "data: {kind: text, path: corpus.txt",
                "j.yaml:9:7: not valid YAML: the '{' here is not closed; write '}' after its last value"},
        Mistake{"BracketClosedTwice", "resources:\n  ranks: 2", "resources: {ranks: 2}}",
                "j.yaml:15:22: not valid YAML: closes a bracket that nothing opens; leave it out"},
        Mistake{"SecondColon", "path: corpus.txt", "path: a: b",
                "j.yaml:11:10: not valid YAML: a second colon in the line; put the value in quotes, or begin a "
                "section's fields on the next line"},
        Mistake{"PercentFirst", "path: corpus.txt", "path: %data",
                "j.yaml:11:9: not valid YAML: a value cannot begin with '%'; put it in quotes"},
        Mistake{"AtFirst", "path: corpus.txt", "path: @data",
                "j.yaml:11:9: not valid YAML: a value cannot begin with '@'; put it in quotes"},
        Mistake{"StarFirst", "path: corpus.txt", "path: *.txt",
                "j.yaml:11:9: not valid YAML: a value cannot begin with '*'; put it in quotes"},
        Mistake{"Backslash", "path: corpus.txt", "path: \"C:\\data\"",
                "j.yaml:11:9: not valid YAML: a backslash in double quotes begins an escape; write it twice, or use "
                "single quotes"},
        Mistake{"GivenTwice", "  hidden: 64", "  layers: 5",
                "j.yaml:6:3: model.layers: given twice, the first at j.yaml:5:11; keep one"},
        Mistake{"SectionGivenTwice", "resources:", "model:\n  hidden: 4\nresources:",
                "j.yaml:15:1: model: given twice, the first at j.yaml:5:3; keep one"},
        Mistake{"Misspelled", "hidden: 64", "hiden: 64", "j.yaml:6:3: model.hiden: unknown field; did you mean 'hidden'?"},
        Mistake{"SnakeCase", "globalBatch", "global_batch",
                "j.yaml:14:3: train.global_batch: unknown field; did you mean 'globalBatch'?"},
        Mistake{"ClusterFile", "kind: TrainingJob", "kind: Cluster",
                "j.yaml:2:7: kind: expected 'TrainingJob', found 'Cluster'; this is a cluster file, which --cluster "
                "takes"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Values, JobFileMistakes,
    testing::Values(
        Mistake{"Exponent", "steps: 10", "steps: 1e6",
                "j.yaml:13:10: train.steps: expected a whole number up to 9223372036854775807, found '1e6'; write "
                "1000000"},
        Mistake{"Underscores", "steps: 10", "steps: 1_000_000",
                "j.yaml:13:10: train.steps: expected a whole number up to 9223372036854775807, found '1_000_000'; "
                "write 1000000"},
        Mistake{"Commas", "steps: 10", "steps: 1,000",
                "j.yaml:13:10: train.steps: expected a whole number up to 9223372036854775807, found '1,000'; write "
                "1000"},
        Mistake{"Point", "steps: 10", "steps: 10.0",
                "j.yaml:13:10: train.steps: expected a whole number up to 9223372036854775807, found '10.0'; write 10"},
        Mistake{"Thousands", "seq: 32", "seq: 2k",
                "j.yaml:8:8: model.seq: expected a whole number up to 2147483647, found '2k'; write all digits"},
        Mistake{"UnitWhereThereIsNone", "layers: 4", "layers: 4 layers",
                "j.yaml:5:11: model.layers: expected a whole number up to 2147483647, found '4 layers'; write the "
                "number alone, without ' layers'"},
        Mistake{"Word", "layers: 4", "layers: four",
                "j.yaml:5:11: model.layers: expected a whole number up to 2147483647, found 'four'"},
        Mistake{"Dash", "ranks: 2", "ranks: 2-4",
                "j.yaml:16:10: resources.ranks: expected a number or a range such as 2..8, found '2-4'"},
        Mistake{"RealPercent", "  seq: 32", "  seq: 32\n  dropout: 10%",
                "j.yaml:9:12: model.dropout: expected a number, found '10%'; write 0.1"},
        Mistake{"RealComma", "  seq: 32", "  seq: 32\n  dropout: 0,1",
                "j.yaml:9:12: model.dropout: expected a number, found '0,1'; write 0.1, with a point"},
        Mistake{"SharePercent", "name: tiny", "name: tiny\nrecomputeOptions: {offloadShare: 50%}",
                "j.yaml:4:34: recomputeOptions.offloadShare: expected a number from 0 to 1, found '50%'; write 0.5"},
        Mistake{"Minutes", "name: tiny", "name: tiny\nscheduling: {timeLimit: 30m}",
                "j.yaml:4:25: scheduling.timeLimit: expected a duration such as 5us, 1.5ms, 90min or 12h, found "
                "'30m'; write 30min"},
        Mistake{"Hours", "name: tiny", "name: tiny\nscheduling: {timeLimit: 12 hours}",
                "j.yaml:4:25: scheduling.timeLimit: expected a duration such as 5us, 1.5ms, 90min or 12h, found '12 "
                "hours'; write 12h"},
        Mistake{"ClockTime", "name: tiny", "name: tiny\nscheduling:\n  timeLimit: 12:00:00",
                "j.yaml:5:14: scheduling.timeLimit: expected a duration such as 5us, 1.5ms, 90min or 12h, found "
                "'12:00:00'; write it in one unit, such as 90min or 12h"},
        Mistake{"NoUnit", "name: tiny", "name: tiny\nscheduling: {timeLimit: 3600}",
                "j.yaml:4:25: scheduling.timeLimit: expected a duration such as 5us, 1.5ms, 90min or 12h, found "
                "'3600'; write its unit, such as 3600s or 3600min"},
        Mistake{"SizeWithoutB", "ranks: 2", "ranks: 2\n  activationMemoryPerRank: 80G",
                "j.yaml:17:28: resources.activationMemoryPerRank: expected a size such as 512KiB, 24MiB, 1.5GiB or "
                "100MB, found '80G'; write 80GiB (80 x 1024^3 bytes) or 80GB (80 x 1000^3)"},
        Mistake{"SizeInLowerCase", "ranks: 2", "ranks: 2\n  activationMemoryPerRank: 80gb",
                "j.yaml:17:28: resources.activationMemoryPerRank: expected a size such as 512KiB, 24MiB, 1.5GiB or "
                "100MB, found '80gb'; write 80GiB (80 x 1024^3 bytes) or 80GB (80 x 1000^3)"},
        Mistake{"SizeWithBlank", "ranks: 2", "ranks: 2\n  activationMemoryPerRank: 24 MiB",
                "j.yaml:17:28: resources.activationMemoryPerRank: expected a size such as 512KiB, 24MiB, 1.5GiB or "
                "100MB, found '24 MiB'; write 24MiB"},
        Mistake{"SwitchInWords", "ranks: 2", "ranks: 2\nscheduling: {hold: yes}",
                "j.yaml:17:20: scheduling.hold: expected true or false, found 'yes'"},
        Mistake{"Choice", "ranks: 2", "ranks: 2\nparallel: {sequenceParallel: yes}",
                "j.yaml:17:30: parallel.sequenceParallel: expected auto, off or on, found 'yes'"}),
    NameOf);

// These texts are valid, although they may look like mistakes.
TEST(JobFileMistakesTest, WhatIsValidIsTaken) {
  std::string with_returns;
  for (const char c : std::string(kGood)) with_returns += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const std::string texts[] = {with_returns,
                               "\xef\xbb\xbf" + std::string(kGood),
                               "\xef\xbb\xbf" + Edited(kGood, "name: tiny", "name: 'tiny'"),
                               std::string(kGood, sizeof(kGood) - 2),
                               Edited(kGood, "name: tiny", "name : tiny"),
                               Edited(kGood, "name: tiny", "name: \"tiny\"  # \xe2\x80\x9cquoted\xe2\x80\x9d"),
                               Edited(kGood, "model:\n", "model:\n\t\n"),
                               Edited(kGood, "resources:\n  ranks: 2", "resources: {\n\tranks: 2\n  }"),
                               Edited(kGood, "corpus.txt", "'it''s: \"a b\" {'"),
                               Edited(kGood, "corpus.txt", "\"a" + kNoBreak + "b\\\" c\""),
                               Edited(kGood, "corpus.txt", "James\xe2\x80\x99s/a:b"),
                               Edited(kGood, "model:", "onFailure: |\n  log \"odd" + kNoBreak + "words: retry\nmodel:")};
  for (const std::string& text : texts) {
    const auto spec = ParseJobFile(text, "j.yaml", "/data");
    EXPECT_TRUE(spec.ok()) << spec.status() << "\n" << text;
  }
}

TEST(JobFileMistakesTest, SwitchesAreTrueOrOn) {
  for (const auto& [text, on] :
       std::vector<std::pair<std::string, bool>>{{"true", true}, {"on", true}, {"false", false}, {"off", false}}) {
    for (const bool in_file : {true, false}) {
      SCOPED_TRACE(text + (in_file ? " in the file" : " by --set"));
      std::vector<std::string> set;
      std::string file = kGood;
      if (in_file) {
        file += "scheduling: {hold: " + text + "}\nparallel: {tp: 2, sequenceParallel: " + text + "}\n";
      } else {
        set = {"scheduling.hold=" + text, "parallel.tp=2", "parallel.sequenceParallel=" + text};
      }
      const auto spec = ParseJobFile(file, "j.yaml", "/data", set);
      ASSERT_TRUE(spec.ok()) << spec.status();
      EXPECT_EQ(spec->scheduling.hold, on);
      EXPECT_EQ(spec->parallel.sequence_parallel, on ? Choice::kOn : Choice::kOff);
    }
  }
}

TEST(JobFileMistakesTest, SetNamesTheSectionsOfAField) {
  const auto error = [](const std::string& set) {
    return std::string(ParseJobFile(kGood, "j.yaml", "/data", {set}).status().message());
  };
  EXPECT_EQ(error("layers=4"), "--set layers=4: unknown field; did you mean 'model.layers' or 'recomputeOptions.layers'?");
  EXPECT_EQ(error("schedule=linear"),
            "--set schedule=linear: unknown field; did you mean 'train.schedule' or 'parallel.schedule'?");
  EXPECT_EQ(error("scheduling.timeLimit=30m"),
            "--set scheduling.timeLimit=30m: expected a duration such as 5us, 1.5ms, 90min or 12h, found '30m'; "
            "write 30min");
}

TEST(JobFileMistakesTest, OtherEncodingsAreNamed) {
  const auto spec = ParseJobFile(std::string("\xff\xfe"
                                             "a\0:\0",
                                             6),
                                 "j.yaml", "/data");
  EXPECT_EQ(std::string(spec.status().message()), "j.yaml: is UTF-16; save it as UTF-8");
}

constexpr char kCluster[] = R"(apiVersion: lynx/v1
kind: Cluster
name: two
nodeGroups:
  - name: big
    nodes: 2
    devicesPerNode: 8
    device:
      memory: 80GB
      peak: {float32: 20TFLOP/s}
      memoryBandwidth: 2TB/s
    links:
      node: {latency: 3us, bandwidth: 300GB/s}
      network: {latency: 10us, bandwidth: 200Gbit/s, share: 0.8}
)";

class ClusterFileMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(ClusterFileMistakes, NamePlaceMistakeAndRemedy) {
  const std::string text = Edited(kCluster, GetParam().from, GetParam().to);
  const auto file = ParseClusterFile(text, "c.yaml");
  ASSERT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(std::string(file.status().message()), GetParam().expected) << text;
}

TEST(ClusterFileMistakesTest, SizesAreOfAThousandOr1024) {
  EXPECT_EQ(ParseClusterFile(kCluster, "c.yaml")->cluster.groups[0].memory_per_device, Bytes(80'000'000'000));
  EXPECT_EQ(ParseClusterFile(Edited(kCluster, "80GB", "80GiB"), "c.yaml")->cluster.groups[0].memory_per_device, kGiB * 80);
}

INSTANTIATE_TEST_SUITE_P(
    Values, ClusterFileMistakes,
    testing::Values(
        Mistake{"Memory", "80GB", "80G",
                "c.yaml:9:15: nodeGroups[0].device.memory: expected a size such as 512KiB, 24MiB, 1.5GiB or 100MB, "
                "found '80G'; write "
                "80GiB (80 x 1024^3 bytes) or 80GB (80 x 1000^3)"},
        Mistake{"RateWithoutTime", "300GB/s", "300GB",
                "c.yaml:13:39: nodeGroups[0].links.node.bandwidth: expected a rate above zero such as 300GB/s or "
                "200Gbit/s, found "
                "'300GB'; write 300GiB/s (300 x 1024^3 bytes) or 300GB/s (300 x 1000^3)"},
        Mistake{"Gbps", "200Gbit/s", "200Gbps",
                "c.yaml:14:43: nodeGroups[0].links.network.bandwidth: expected a rate above zero such as 300GB/s or "
                "200Gbit/s, found "
                "'200Gbps'; write 200Gbit/s or 200GB/s (bytes)"},
        Mistake{"Flops", "20TFLOP/s", "20TFLOPS",
                "c.yaml:10:23: nodeGroups[0].device.peak.float32: expected a rate above zero such as 312TFLOP/s, "
                "found '20TFLOPS'; "
                "write 20TFLOP/s"},
        Mistake{"Percent", "share: 0.8", "share: 80%",
                "c.yaml:14:61: nodeGroups[0].links.network.share: expected a number from 0.001 to 1, found "
                "'80%'; write 0.8"},
        Mistake{"LatencyUnit", "10us", "10 us",
                "c.yaml:14:26: nodeGroups[0].links.network.latency: expected a duration such as 5us, 1.5ms, 90min or "
                "12h, found '10 us'; "
                "write 10us"},
        Mistake{"ItemTooFarRight", "    nodes: 2", "      nodes: 2",
                "c.yaml:6:7: not valid YAML: begins further to the right than line 5, which has a value already; "
                "begin both in the same column"},
        Mistake{"NoList", "  - name: big\n    nodes", "    name: big\n    nodes",
                "c.yaml:5:5: nodeGroups: expected a list ('- ' before each item), found fields"},
        Mistake{"JobFile", "kind: Cluster", "kind: TrainingJob",
                "c.yaml:2:7: kind: expected 'Cluster', found 'TrainingJob'; this is a job file, which -f takes"}),
    NameOf);

}  // namespace
}  // namespace lynx::cli

#include "cli/output/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_split.h"

namespace lynx::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Sparkline, StandsForTheValues) {
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8, LowestBar::kZero, Glyphs::kUnicode), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8, LowestBar::kZero, Glyphs::kAscii), "_.:-=+*#");
  EXPECT_EQ(Sparkline({7, 7}, 8, LowestBar::kZero, Glyphs::kUnicode), "██") << "from zero, what stays the same is high";
  EXPECT_EQ(Sparkline({7, 7}, 8, LowestBar::kSmallestValue, Glyphs::kUnicode), "▁▁");
  EXPECT_EQ(Sparkline({5, 6}, 8, LowestBar::kSmallestValue, Glyphs::kUnicode), "▁█");
  EXPECT_EQ(Sparkline({0, 0, 4, 8}, 2, LowestBar::kZero, Glyphs::kAscii), "_#") << "means of those that fall to a bar";
  EXPECT_EQ(Sparkline({std::nan(""), 1, INFINITY}, 8, LowestBar::kZero, Glyphs::kAscii), "#");
  EXPECT_EQ(Sparkline({}, 8, LowestBar::kZero, Glyphs::kUnicode), "");
  EXPECT_EQ(Sparkline({0}, 8, LowestBar::kZero, Glyphs::kAscii), "_");
}

TopView View() {
  TopView view{.server = "10.0.0.1:7470", .now = Nanos(1)};
  view.nodes.set_server_version("1.2");
  v1::Node& node = *view.nodes.add_nodes();
  node.set_name("n0");
  node.set_agent_attached(true);
  node.set_worker_attached(true);
  for (int i = 0; i < 4; ++i) node.add_devices();
  node.set_devices_used(2);
  node.add_jobs("j1");
  v1::Job waiting;
  waiting.set_id("j2");
  waiting.mutable_spec()->set_name("second");
  waiting.set_state(v1::JOB_STATE_QUEUED);
  waiting.set_reason("waits for 4 devices\nmore");
  v1::Job running;
  running.set_id("j1");
  running.mutable_spec()->set_name("first");
  running.mutable_spec()->mutable_train()->set_steps(200);
  running.set_state(v1::JOB_STATE_RUNNING);
  running.mutable_progress()->set_steps_done(50);
  running.mutable_progress()->set_loss(2.5);
  running.mutable_progress()->set_tokens_per_second(4000);
  running.mutable_progress()->set_step_ns(20'000'000);
  running.mutable_progress()->set_eta_ns(3'000'000'000);
  view.jobs = {waiting, running};
  view.curves.resize(2);
  for (const double rate : {0.0, 4000.0}) {
    v1::StepPoint& point = *view.curves[1].add_steps();
    point.set_tokens_per_second(rate);
    point.set_loss(5 - rate / 1000);
  }
  return view;
}

TEST(TopScreen, ShowsWhatTrainsBeforeWhatWaits) {
  const std::string screen = TopScreen(View(), {.unicode = false});
  EXPECT_EQ(screen,
            "lynx 1.2 at 10.0.0.1:7470\n"
            "1 node, 2 of 4 devices used; 1 job trains at 4k tokens/s, 1 waits or starts\n"
            "\n"
            "JOB  NAME    STATE    DONE  LOSS       TOK/S      STEP     ETA     WHY\n"
            "j1   first   RUNNING  25%   2.500  #_  4k     _#  20.0 ms  3.00 s\n"
            "j2   second  QUEUED   0%    -          -          -        -       waits for 4 devices\n"
            "\n"
            "NODE  STATE  USED                    JOBS\n"
            "n0    ready  2/4   ########........  j1\n");
  EXPECT_THAT(TopScreen(View(), {}), HasSubstr("████████░░░░░░░░"));
}

TEST(TopScreen, ShowsTheLoadOfExpertsIfAJobHasSome) {
  TopView view = View();
  view.jobs[1].mutable_progress()->set_expert_skew(1.374);
  EXPECT_THAT(TopScreen(view, {.unicode = false}),
              HasSubstr("JOB  NAME    STATE    DONE  LOSS       TOK/S      EXPERTS  STEP     ETA     WHY\n"
                        "j1   first   RUNNING  25%   2.500  #_  4k     _#  1.37x    20.0 ms  3.00 s\n"
                        "j2   second  QUEUED   0%    -          -          -        -        -       waits for 4 devices\n"));
  view.jobs[1].mutable_progress()->set_expert_dropped_ratio(0.0213);
  EXPECT_THAT(TopScreen(view, {.unicode = false}), HasSubstr("  1.37x, 2.1% dropped  20.0 ms"));
  view.jobs[1].mutable_progress()->set_expert_dropped_ratio(0);
  view.jobs[1].mutable_progress()->set_expert_in_rounds_ratio(0.0213);
  view.jobs[1].mutable_progress()->set_expert_rounds(40);
  EXPECT_THAT(TopScreen(view, {.unicode = false}), HasSubstr("  1.37x, 2.1% in 40 rounds  20.0 ms"));
}

TEST(TopScreen, SaysWhereItDoesNotKnowAll) {
  TopView view;
  view.jobs.resize(3);
  view.jobs[0].set_state(v1::JOB_STATE_RUNNING);
  view.more_waiting = true;
  EXPECT_THAT(TopScreen(view, {}), HasSubstr("; 1 job trains at 0 tokens/s, at least 2 wait or start\n"));
  view.more_active = true;
  EXPECT_THAT(TopScreen(view, {}), HasSubstr("; at least 1 job trains at 0 tokens/s, at least 2 wait or start\n"));
}

TEST(TopScreen, FitsItsTerminal) {
  TopView view = View();
  for (int i = 0; i < 50; ++i) view.jobs.push_back(view.jobs[0]);
  for (const size_t width : {10u, 40u, 80u}) {
    const std::string screen = TopScreen(view, {.width = width, .height = 12});
    const std::vector<std::string> lines = absl::StrSplit(screen, '\n');
    EXPECT_EQ(lines.size(), 13u) << "and what follows the last newline";
    for (const std::string& line : lines) {
      EXPECT_LE(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }), static_cast<int64_t>(width))
          << line;
    }
    EXPECT_THAT(lines[11], HasSubstr("... "));
  }
}

TEST(TopScreen, LeavesOutColumnsInANarrowTerminal) {
  TopView view = View();
  view.jobs[0].mutable_spec()->set_name("second-of-several");
  view.jobs[0].set_reason("waits for 4 devices of the queue research");
  EXPECT_EQ(TopScreen(view, {.width = 60, .unicode = false}),
            "lynx 1.2 at 10.0.0.1:7470\n"
            "1 node, 2 of 4 devices used; 1 job trains at 4k tokens/s, 1\n"
            "  waits or starts\n"
            "\n"
            "JOB  NAME          STATE    DONE  LOSS   TOK/S  ETA\n"
            "j1   first         RUNNING  25%   2.500  4k     3.00 s\n"
            "j2   second-of-s~  QUEUED   0%    -      -      -\n"
            "  waits for 4 devices of the queue research\n"
            "\n"
            "NODE  STATE  USED                    JOBS\n"
            "n0    ready  2/4   ########........  j1\n");
  EXPECT_EQ(TopScreen(view, {.width = 40, .unicode = false}),
            "lynx 1.2 at 10.0.0.1:7470\n"
            "1 node, 2 of 4 devices used; 1 job\n"
            "  trains at 4k tokens/s, 1 waits or\n"
            "  starts\n"
            "\n"
            "JOB  NAME      STATE    DONE  LOSS\n"
            "j1   first     RUNNING  25%   2.500\n"
            "j2   second-~  QUEUED   0%    -\n"
            "  waits for 4 devices of the queue\n"
            "  research\n"
            "\n"
            "NODE  STATE  USED  JOBS\n"
            "n0    ready  2/4   j1\n");
}

// Tables with curves of the full length need more than 80 columns, and with reasons more than 100.
TEST(TopScreen, NothingOfATableIsCutInWiderTerminals) {
  TopView view = View();
  view.jobs[0].set_reason("waits for 4 devices, which the queue research has");
  const v1::StepPoint last = view.curves[1].steps(1);
  for (int i = 0; i < 30; ++i) *view.curves[1].add_steps() = last;
  EXPECT_THAT(TopScreen(view, {.width = 160, .unicode = false}), HasSubstr("  WHY\n")) << "there is room";
  const std::string wide = TopScreen(view, {.width = 100, .unicode = false});
  EXPECT_THAT(wide,
              HasSubstr("\nJOB  NAME    STATE    DONE  LOSS                 TOK/S                            STEP     ETA\n"));
  EXPECT_THAT(wide, HasSubstr("  20.0 ms  3.00 s\n"));
  EXPECT_THAT(wide, HasSubstr("\n  waits for 4 devices, which the queue research has\n"));
  const std::string screen = TopScreen(view, {.width = 80, .unicode = false});
  EXPECT_THAT(screen, HasSubstr("\nJOB  NAME    STATE    DONE  LOSS   TOK/S  STEP     ETA\n"
                                "j1   first   RUNNING  25%   2.500  4k     20.0 ms  3.00 s\n"
                                "j2   second  QUEUED   0%    -      -      -        -\n"
                                "  waits for 4 devices, which the queue research has\n"));
  EXPECT_THAT(screen, Not(HasSubstr("~")));
}

TEST(TopScreen, WideTablesOfNodesAndQueuesLeaveOutColumns) {
  TopView view = View();
  view.nodes.mutable_nodes(0)->set_name(std::string(50, 'n'));
  view.queues.resize(2);
  view.queues[0].set_name(std::string(70, 'q'));
  for (const size_t width : {80u, 100u}) {
    const std::string screen = TopScreen(view, {.width = width, .unicode = false});
    EXPECT_THAT(screen, HasSubstr("JOBS\n"));
    EXPECT_THAT(screen, Not(HasSubstr("~"))) << width;
  }
  EXPECT_THAT(TopScreen(view, {.width = 80, .unicode = false}), Not(HasSubstr("####"))) << "the bar is left out";
  EXPECT_THAT(TopScreen(view, {.width = 100, .unicode = false}), HasSubstr("####"));
}

TEST(TopScreen, ACutNameHasTheMarkOfACutLine) {
  TopView view = View();
  view.jobs[0].mutable_spec()->set_name("second-of-several");
  EXPECT_THAT(TopScreen(view, {.width = 40}), HasSubstr("  second-…  QUEUED"));
  EXPECT_THAT(TopScreen(view, {.width = 40, .unicode = false}), HasSubstr("  second-~  QUEUED"));
}

TEST(TopScreen, WrapsWhatIsWrong) {
  TopView view = View();
  view.problem = "cannot reach lynx-server at 10.0.0.1:7470: connection refused";
  EXPECT_THAT(TopScreen(view, {.width = 40}), HasSubstr("cannot reach lynx-server at\n  10.0.0.1:7470: connection refused\n"));
}

TEST(TopScreen, SaysWhatIsWrongAndWhatIsNotThere) {
  TopView view;
  view.problem = "the server is away";
  const std::string screen = TopScreen(view, {});
  EXPECT_THAT(screen, HasSubstr("the server is away\n"));
  EXPECT_THAT(screen, HasSubstr("no job trains or waits\n"));
  EXPECT_THAT(screen, HasSubstr("no nodes have attached yet\n"));
  EXPECT_THAT(screen, Not(HasSubstr("QUEUE")));
  view.nodes.add_nodes()->set_name("n0");
  EXPECT_THAT(TopScreen(view, {}), HasSubstr("1 node (1 not ready), 0 of 0 devices used"));
}

TEST(TopScreen, ObeysNothingThatOthersWrote) {
  TopView view = View();
  view.jobs[0].set_reason("waits\x1b[2J\rfor");
  view.problem = "away: \x1b]0;x\x07";
  const std::string screen = TopScreen(view, {.color = true});
  EXPECT_THAT(screen, HasSubstr("waits\\x1b[2J\\rfor"));
  EXPECT_THAT(screen, HasSubstr("away: \\x1b]0;x\\x07\n"));
  EXPECT_THAT(screen, HasSubstr("\033[7mJOB ")) << "its own colours stay";
}

TEST(TopScreen, SeveralQueuesAreShown) {
  TopView view = View();
  view.queues.resize(2);
  view.queues[0].set_name("default");
  view.queues[1].set_name("research");
  EXPECT_THAT(TopScreen(view, {}), HasSubstr("\nQUEUE "));
  EXPECT_THAT(TopScreen(view, {.color = true}), HasSubstr("\033[7mQUEUE "));
  const std::vector<std::string> lines = absl::StrSplit(TopScreen(view, {.width = 40, .unicode = false}), '\n');
  const auto queue = std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("QUEUE "); });
  ASSERT_NE(queue, lines.end());
  EXPECT_LE(queue->size(), 40u);
  EXPECT_THAT(*queue, Not(HasSubstr("~"))) << "whole columns are left out";
}

}  // namespace
}  // namespace lynx::cli

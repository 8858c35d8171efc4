#include "planner/recompute/solver_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/recompute/stage_heu.h"
#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Returns `text` with the first `from` replaced by `to`.
std::string With(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(SolverText, ProblemsAndAnswersComeBackTheSame) {
  RandomNumbers number(11);
  int solved = 0;
  for (int i = 0; i < 200; ++i) {
    RecomputeProblem problem =
        RandomProblem({.items = 5, .forward = 4, .backward = 4, .layers = 3, .stall = true, .offload = true}, number);
    problem.budget = Bytes(StoreAllBytes(problem).value * number(0, 10) / 10);
    const absl::StatusOr<RecomputeProblem> back = ParseProblem(ProblemText(problem));
    ASSERT_TRUE(back.ok()) << "problem " << i << ": " << back.status();
    EXPECT_EQ(*back, problem);
    StageAnswer answer{.solution = StageHeu(problem).Best(problem.layers, problem.budget)};
    if (answer.solution) answer.bound = answer.solution->value.exposed / 2;
    const absl::StatusOr<StageAnswer> same = ParseAnswer(problem, AnswerText(problem, answer));
    ASSERT_TRUE(same.ok()) << "problem " << i << ": " << same.status();
    EXPECT_EQ(same->bound, answer.bound);
    EXPECT_EQ(same->proven, answer.proven);
    ASSERT_EQ(same->solution.has_value(), answer.solution.has_value());
    if (!answer.solution) continue;
    ++solved;
    EXPECT_EQ(same->solution->policy, answer.solution->policy);
    EXPECT_EQ(same->solution->value, answer.solution->value);
  }
  EXPECT_GT(solved, 50);
}

// Returns a problem of two layers with one item each. The item has 10 bytes. Recomputing it takes 7 ns, of which a forward
// window hides 3 ns.
RecomputeProblem SmallProblem() {
  RecomputeProblem problem{.forward = {Nanos(3)}, .layers = 2, .in_flight = 2, .budget = Bytes(30)};
  problem.items = {{.bytes = Bytes(10), .cost = Nanos(7), .read_by = 1}};
  return problem;
}

TEST(SolverText, ProblemsThatAreNoneAreRefusedByLine) {
  const std::string text = ProblemText(SmallProblem());
  const std::pair<std::string, std::string> cases[] = {
      {"", "problem: line 0: expected a line 'problem'"},
      {With(text, "layers", "layer"), "problem: line 1: expected 'layers', not 'layer'"},
      {With(text, "layers 2", "layers two"), "problem: line 1: 'two' is not a number"},
      {With(text, "layers 2", "layers 3000000000"), "problem: line 1: layers 3000000000 is out of range"},
      {With(text, "layers 2", "layers 0"), "layers is 0"},
      {With(text, "forward 3", "forward x"), "problem: line 2: 'x' is not a number"},
      {With(text, "collective 0", "collective 2"), "problem: line 4: collective is 0 or 1"},
      {With(text, "end", ""), "problem: line 4: expected a line 'end'"},
      {With(text, "copy_in 0\nend", "copy_in 0 1\nend"), "problem: line 4: '1' is a word too many"},
      {With(text, " copy_in 0\nend", "\nend"), "problem: line 4: a word is missing"}};
  for (const auto& [bad, message] : cases) {
    EXPECT_THAT(Message(ParseProblem(bad).status()), HasSubstr(message)) << bad;
  }
}

TEST(SolverText, AnswersThatDoNotHoldAreRefused) {
  const RecomputeProblem problem = SmallProblem();
  // One layer stores the item. The other layer recomputes it in 7 ns, of which its window hides 3 ns.
  EXPECT_EQ(ParseAnswer(problem, "answer proven 1 bound 4\nlayer store\nlayer f1\nend\n")->solution->value.exposed, Nanos(4));
  EXPECT_FALSE(ParseAnswer(problem, "answer proven 1 bound 0\nend\n")->solution.has_value());
  const std::pair<std::string, std::string> cases[] = {
      {"nonsense", "answer: line 0: expected a line 'answer'"},
      {"answer proven 1 bound 4\nlayer nowhere\nend", "answer: line 2: 'nowhere' is not a placement"},
      {"answer proven 1 bound 4\nlayer store f1\nend", "answer: line 2: 'f1' is a word too many"},
      {"answer proven 1 bound 4\nlayer store\nend", "answer: "},  // a layer is missing
      {"answer proven 1 bound 4\nlayer f2\nlayer store\nend", "answer: "},
      {"answer proven 0 bound 0\nlayer store\nlayer store\nend", "takes 40 of 30 bytes"},
      {"answer proven 0 bound 5\nlayer store\nlayer f1\nend", "exposes 4 ns where 5 are said to be the least possible"},
      {"answer proven 1 bound 3\nlayer store\nlayer f1\nend", "exposes 4 ns where 3 are said to be the optimum"}};
  for (const auto& [bad, message] : cases) {
    EXPECT_THAT(Message(ParseAnswer(problem, bad).status()), HasSubstr(message)) << bad;
  }
}

}  // namespace
}  // namespace lynx

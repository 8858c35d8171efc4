// Prints programs for golden files.
#ifndef LYNX_TESTS_PLANNER_LOWER_GOLDEN_PROGRAMS_H_
#define LYNX_TESTS_PLANNER_LOWER_GOLDEN_PROGRAMS_H_

#include <gtest/gtest.h>

#include <string>

#include "tests/golden/golden.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {

// Returns the programs as text. A forward or backward segment, or the exchange of norms, begins a new line. The line also has
// the actions that follow.
inline std::string ReadableText(const Pipeline& pipeline) {
  std::string text;
  for (size_t s = 0; s < pipeline.programs.size(); ++s) {
    const StageContext& c = pipeline.contexts[s];
    text += "# stage " + std::to_string(s);
    for (size_t i = 0; i < c.slices.size(); ++i) {
      text += (i == 0 ? ", " : "; ") + StagePolicyText(c.graph(), pipeline.policies[s][i], c.slices[i].first_layer);
    }
    for (const Action& action : pipeline.programs[s]) {
      const bool starts_line = action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward ||
                               action.kind == ActionKind::kNormStart || &action == &pipeline.programs[s].front();
      text += (starts_line ? "\n" : " ") + ActionText(action);
    }
    text += "\n\n";
  }
  return text;
}

inline void ExpectGoldenPrograms(const std::string& name, const Pipeline& pipeline) {
  const std::string text = ReadableText(pipeline);
  ExpectGolden(name, text);
  const absl::StatusOr<Program> parsed = ParseProgram(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  Program all;
  for (const Program& program : pipeline.programs) all.insert(all.end(), program.begin(), program.end());
  EXPECT_EQ(*parsed, all);
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_LOWER_GOLDEN_PROGRAMS_H_

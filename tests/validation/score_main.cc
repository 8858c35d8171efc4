// lynx_score SOURCE_DIR [SOURCE | --refit]: predicts every published run that the planner can express, and prints the errors by
// source; with SOURCE, a line for each run of the sources whose name begins with it; with --refit, the fitted constants beside
// what a fit finds now.
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "planner/problem/layout.h"
#include "tests/validation/score.h"

namespace {

std::string Line(const lynx::validation::Prediction& one) {
  const lynx::validation::RunOfFramework& run = *one.run;
  std::string text = absl::StrFormat("%s\t%s\t%s", run.row, run.model, lynx::EnumName(run.obstacle));
  if (!run.described) return text;
  absl::StrAppendFormat(&text, "\t%s b%d M%d %s", lynx::LayoutText(run.request.layout), run.request.micro_batch,
                        run.request.microbatches, lynx::EnumName(run.request.recompute));
  if (one.has_time()) {
    absl::StrAppendFormat(&text, "\t%.4f s, measured %.4f s, %+.1f%%", one.step_seconds, run.step_seconds,
                          100 * one.TimeError());
  }
  if (one.memory_bytes > 0 && !one.has_memory()) absl::StrAppendFormat(&text, "\t%.1f GB", one.memory_bytes / 1e9);
  if (one.has_memory()) {
    absl::StrAppendFormat(&text, "\t%.2f GB, measured %.2f GB, %+.1f%%", one.memory_bytes / 1e9, run.memory_bytes / 1e9,
                          100 * one.MemoryError());
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: lynx_score SOURCE_DIR [SOURCE | --refit]\n";
    return 2;
  }
  lynx::validation::Scoreboard board(argv[1]);
  if (argc == 3 && std::string(argv[2]) == "--refit") {
    for (const lynx::validation::FittedConstant& constant : lynx::validation::FittedConstants()) {
      std::cout << constant.name << ": " << constant.value << ", fitted " << board.Refit(constant) << "\n";
    }
    return 0;
  }
  if (argc == 2) {
    const std::vector<lynx::validation::Prediction> predictions = board.PredictAll();
    std::cout << lynx::validation::ErrorTable(predictions) << lynx::validation::ChoiceTable(predictions);
    return 0;
  }
  for (const lynx::validation::RunOfFramework& run : board.runs()) {
    if (absl::StartsWith(run.source, argv[2])) std::cout << Line(board.Predict(run)) << "\n";
  }
  return 0;
}

#include "planner/recompute/solver_text.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace lynx {

const char* ProofStatusName(ProofStatus status) {
  switch (status) {
    case ProofStatus::kOptimal: return "optimal";
    case ProofStatus::kTimeLimit: return "time limit";
    case ProofStatus::kModel: return "model only";
  }
  return "";
}

namespace {

// Splits the text into lines and words. Remembers the first error.
class Reader {
 public:
  explicit Reader(std::string_view text) : lines_(absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {}

  // Goes to the next line and checks its first word.
  bool Line(const std::string& name) {
    if (!NextIs(name)) {
      Fail(absl::StrCat("expected a line '", name, "'"));
      return false;
    }
    words_ = absl::StrSplit(lines_[line_++], ' ', absl::SkipEmpty());
    word_ = 1;
    return true;
  }
  bool NextIs(const std::string& name) const {
    if (line_ >= lines_.size()) return false;
    const std::vector<std::string> words = absl::StrSplit(lines_[line_], ' ', absl::SkipEmpty());
    return !words.empty() && words[0] == name;
  }
  bool AtEndOfLine() const { return word_ >= words_.size(); }
  void EndLine() {
    if (!AtEndOfLine()) Fail(absl::StrCat("'", words_[word_], "' is a word too many"));
  }

  std::string Word() {
    if (!AtEndOfLine()) return words_[word_++];
    Fail("a word is missing");
    return "";
  }
  int64_t Number() {
    const std::string word = Word();
    int64_t value = 0;
    if (!absl::SimpleAtoi(word, &value)) Fail(absl::StrCat("'", word, "' is not a number"));
    return value;
  }
  template <class Int>
  void Field(const std::string& name, Int& value) {
    if (const std::string word = Word(); word != name) Fail(absl::StrCat("expected '", name, "', not '", word, "'"));
    const int64_t number = Number();
    if (number < int64_t{std::numeric_limits<Int>::min()} || number > int64_t{std::numeric_limits<Int>::max()}) {
      Fail(absl::StrCat(name, " ", number, " is out of range"));
    }
    value = static_cast<Int>(number);
  }
  void Field(const std::string& name, Bytes& value) { Field(name, value.value); }
  void Field(const std::string& name, Nanos& value) { Field(name, value.value); }
  void Field(const std::string& name, bool& value) {
    uint8_t number = 0;
    Field(name, number);
    if (number > 1) Fail(absl::StrCat(name, " is 0 or 1"));
    value = number == 1;
  }

  void Fail(const std::string& what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }
  const absl::Status& status() const { return status_; }

 private:
  std::vector<std::string> lines_;
  size_t line_ = 0;  // number of the next line
  std::vector<std::string> words_;
  size_t word_ = 0;
  absl::Status status_;
};

void AppendTimes(const std::string& name, const std::vector<Nanos>& times, std::string& text) {
  text += name;
  for (const Nanos time : times) absl::StrAppend(&text, " ", time.value);
  text += "\n";
}

void ReadTimes(const std::string& name, Reader& reader, std::vector<Nanos>& times) {
  if (!reader.Line(name)) return;
  while (!reader.AtEndOfLine() && reader.status().ok()) times.push_back(Nanos(reader.Number()));
}

RecomputeItem ReadItem(Reader& reader) {
  RecomputeItem item;
  reader.Field("bytes", item.bytes);
  reader.Field("cost", item.cost);
  reader.Field("inputs", item.inputs);
  reader.Field("read_by", item.read_by);
  reader.Field("collective", item.collective);
  reader.Field("allowed", item.allowed);
  reader.Field("copy_out", item.copy_out);
  reader.Field("copy_in", item.copy_in);
  reader.EndLine();
  return item;
}

Placement ReadPlacement(Reader& reader) {
  const std::string word = reader.Word();
  Placement placement = Placement::kStore;
  if (!ParseEnum(word, placement)) reader.Fail(absl::StrCat("'", word, "' is not a placement"));
  return placement;
}

absl::Status CheckSolution(const RecomputeProblem& problem, const StageAnswer& answer) {
  const StageValue& value = answer.solution->value;
  if (!Fits(problem, value)) {
    return absl::InvalidArgumentError(absl::StrCat("the solution takes ", value.bytes().value, " of ", problem.budget.value,
                                                   " bytes and ", value.host.value, " of ", problem.host_budget.value,
                                                   " bytes of the host"));
  }
  if (value.exposed < answer.bound || (answer.proven && value.exposed > answer.bound)) {
    return absl::InvalidArgumentError(absl::StrCat("the solution exposes ", value.exposed.value, " ns where ",
                                                   answer.bound.value, " are said to be ",
                                                   answer.proven ? "the optimum" : "the least possible"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ProblemText(const RecomputeProblem& problem) {
  std::string text = absl::StrCat("problem layers ", problem.layers, " in_flight ", problem.in_flight, " budget ",
                                  problem.budget.value, " stall ", problem.stall.value, " early ", problem.early.value);
  absl::StrAppend(&text, " resident ", problem.resident, " copy_out ", problem.copy_out.value, " copy_in ",
                  problem.copy_in.value, " host_budget ", problem.host_budget.value, "\n");
  AppendTimes("forward", problem.forward, text);
  AppendTimes("backward", problem.backward, text);
  for (const RecomputeItem& item : problem.items) {
    absl::StrAppend(&text, "item bytes ", item.bytes.value, " cost ", item.cost.value, " inputs ", item.inputs, " read_by ",
                    item.read_by);
    absl::StrAppend(&text, " collective ", item.collective ? 1 : 0, " allowed ", item.allowed, " copy_out ",
                    item.copy_out.value, " copy_in ", item.copy_in.value, "\n");
  }
  return text + "end\n";
}

absl::StatusOr<RecomputeProblem> ParseProblem(std::string_view text) {
  Reader reader(text);
  RecomputeProblem problem;
  if (reader.Line("problem")) {
    reader.Field("layers", problem.layers);
    reader.Field("in_flight", problem.in_flight);
    reader.Field("budget", problem.budget);
    reader.Field("stall", problem.stall);
    reader.Field("early", problem.early);
    reader.Field("resident", problem.resident);
    reader.Field("copy_out", problem.copy_out);
    reader.Field("copy_in", problem.copy_in);
    reader.Field("host_budget", problem.host_budget);
    reader.EndLine();
  }
  ReadTimes("forward", reader, problem.forward);
  ReadTimes("backward", reader, problem.backward);
  while (reader.NextIs("item") && reader.Line("item")) problem.items.push_back(ReadItem(reader));
  reader.Line("end");
  LYNX_RETURN_IF_ERROR(Annotate(reader.status(), "problem"));
  LYNX_RETURN_IF_ERROR(ValidateProblem(problem));
  return problem;
}

std::string AnswerText(const RecomputeProblem& problem, const StageAnswer& answer) {
  std::string text = absl::StrCat("answer proven ", answer.proven ? 1 : 0, " bound ", answer.bound.value, "\n");
  if (answer.solution) {
    for (const LayerPolicy& layer : answer.solution->policy.layers) {
      text += "layer";
      for (size_t i = 0; i < problem.items.size(); ++i) absl::StrAppend(&text, " ", EnumName(layer[i]));
      text += "\n";
    }
  }
  return text + "end\n";
}

absl::StatusOr<StageAnswer> ParseAnswer(const RecomputeProblem& problem, std::string_view text) {
  Reader reader(text);
  StageAnswer answer;
  if (reader.Line("answer")) {
    reader.Field("proven", answer.proven);
    reader.Field("bound", answer.bound);
    reader.EndLine();
  }
  StagePolicy policy;
  while (reader.NextIs("layer") && reader.Line("layer")) {
    LayerPolicy& layer = policy.layers.emplace_back();
    for (size_t i = 0; i < problem.items.size(); ++i) layer[i] = ReadPlacement(reader);
    reader.EndLine();
  }
  reader.Line("end");
  LYNX_RETURN_IF_ERROR(Annotate(reader.status(), "answer"));
  if (policy.layers.empty()) return answer;
  absl::StatusOr<StageValue> value = EvaluateStage(problem, policy);
  if (!value.ok()) return Annotate(value.status(), "answer");
  answer.solution = StageSolution{std::move(policy), *value};
  LYNX_RETURN_IF_ERROR(Annotate(CheckSolution(problem, answer), "answer"));
  return answer;
}

}  // namespace lynx

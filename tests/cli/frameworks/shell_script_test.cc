#include "cli/frameworks/shell_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Given = std::map<std::string, std::string>;

// Returns the words of the script's last command.
std::vector<std::string> Words(const std::string& text, const Given& given = {}) {
  const absl::StatusOr<ShellScript> script = ReadShellScript(text, "run.sh", given);
  EXPECT_TRUE(script.ok()) << script.status();
  return script.ok() && !script->commands.empty() ? script->commands.back().words : std::vector<std::string>();
}

std::string ErrorOf(const std::string& text, const Given& given = {}) {
  const absl::StatusOr<ShellScript> script = ReadShellScript(text, "run.sh", given);
  EXPECT_EQ(script.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(script.status().message());
}

TEST(ShellScript, ExpandsVariablesAsBashDoes) {
  EXPECT_THAT(Words("A=1\nrun $A ${A} \"$A b\" '$A' x${A}y"), ElementsAre("run", "1", "1", "1 b", "$A", "x1y"));
  EXPECT_THAT(Words("A='1 2'\nrun $A \"$A\""), ElementsAre("run", "1", "2", "1 2"));
  EXPECT_THAT(Words("A=\nrun $A \"$A\" end"), ElementsAre("run", "", "end"));
  EXPECT_THAT(Words("export A=1 B=2\nrun $A$B"), ElementsAre("run", "12"));
  EXPECT_THAT(Words("A=x; A+=y; run $A"), ElementsAre("run", "xy"));
}

TEST(ShellScript, ReadsDefaults) {
  EXPECT_THAT(Words("run ${TP:-4} ${PP-2} ${X:=7} $X"), ElementsAre("run", "4", "2", "7", "7"));
  EXPECT_THAT(Words("TP=8\nrun ${TP:-4} ${TP:+set} ${NO:+set}"), ElementsAre("run", "8", "set"));
  EXPECT_THAT(Words("A=\nrun ${A:-1} \"${A-2}\""), ElementsAre("run", "1", ""));
  EXPECT_THAT(Words("B=3\nrun ${A:-${B}}"), ElementsAre("run", "3"));
}

TEST(ShellScript, ReadsArrays) {
  EXPECT_THAT(Words("A=(\n  --x 1  # why\n  --y 'two words'\n)\nrun ${A[@]}"),
              ElementsAre("run", "--x", "1", "--y", "two", "words"));
  EXPECT_THAT(Words("A=(--y 'two words')\nrun \"${A[@]}\""), ElementsAre("run", "--y", "two words"));
  EXPECT_THAT(Words("A=(a)\nA+=(\"b c\" d)\nB=(\"${A[@]}\" e)\nrun \"${B[@]}\""), ElementsAre("run", "a", "b c", "d", "e"));
  EXPECT_THAT(Words("A=()\nrun \"${A[@]}\" ${A[@]} end"), ElementsAre("run", "end"));
}

TEST(ShellScript, Computes) {
  EXPECT_THAT(Words("G=8\nN=4\nrun $(($G*$N)) $((G * (N - 1) / 2)) $((7 % 4)) $(( ${G} + -1 ))"),
              ElementsAre("run", "32", "12", "3", "7"));
  EXPECT_TRUE(HasUnknown(Words("run $((1 / 0))").back()));
  EXPECT_TRUE(HasUnknown(Words("run $((9223372036854775807 + 1))").back()));
  EXPECT_EQ(FirstUnknown(Words("run $((NODES * 8))").back()), "$((NODES * 8))");
}

TEST(ShellScript, JoinsLinesAndLeavesOutCommentsAndRedirections) {
  EXPECT_THAT(Words("run a \\\n  b \\\n  c # d\n"), ElementsAre("run", "a", "b", "c"));
  EXPECT_THAT(Words("run a 2>&1 > log.txt"), ElementsAre("run", "a"));
  EXPECT_THAT(Words("run a 2>&1 | tee log.txt").front(), "tee");
  EXPECT_THAT(Words("cat <<EOF > x\nrun b\nEOF\nrun a"), ElementsAre("run", "a"));
}

TEST(ShellScript, ExecutesTestsThatTheTextDecides) {
  EXPECT_THAT(Words("T=fp8\nA=()\nif [[ \"$T\" == \"fp8\" ]]; then\n A+=(--fp8)\nelse\n A+=(--bf16)\nfi\nrun ${A[@]}"),
              ElementsAre("run", "--fp8"));
  EXPECT_THAT(Words("N=2\nif [ $N -gt 4 ]; then\n  X=a\nelif [ $N -eq 2 ]; then\n  X=b\nelse\n  X=c\nfi\nrun $X"),
              ElementsAre("run", "b"));
  EXPECT_THAT(Words("[ -z \"${A:-}\" ] && X=1\n[[ -n $X && $X == 2 ]] || Y=3\nrun $X $Y"), ElementsAre("run", "1", "3"));
  EXPECT_THAT(Words("X=1\nif [ $X = 1 ]; then if [ $X = 2 ]; then X=3; else X=4; fi; X=${X}5; fi\nrun $X"),
              ElementsAre("run", "45"));
}

TEST(ShellScript, DoesNotGuessWhatOnlyARunDecides) {
  EXPECT_EQ(FirstUnknown(Words("run --data $DATA").back()), "$DATA");
  EXPECT_EQ(ShownWord(Words("run --data $DATA/x").back()), "$DATA/x");
  EXPECT_EQ(FirstUnknown(Words("H=$(hostname)\nrun $H").back()), "$(hostname)");
  EXPECT_EQ(FirstUnknown(Words("X=1\nif [ -f a.txt ]; then X=2; fi\nrun $X").back()), "$X");
  EXPECT_EQ(FirstUnknown(Words("for X in 1 2; do Y=$X; done\nrun $Y").back()), "$Y");
  EXPECT_EQ(FirstUnknown(Words("X=1\nmkdir a || X=2\nrun $X").back()), "$X");
  EXPECT_EQ(FirstUnknown(Words("run $1").back()), "$1");
  EXPECT_EQ(FirstUnknown(Words("run ${A%.*}").back()), "${A%.*}");
  EXPECT_THAT(Words("cd /somewhere && run a"), ElementsAre("run", "a")) << "the command itself is read";
}

TEST(ShellScript, ComputesConditions) {
  const std::string rest = "then TP=8; else TP=1; fi\nrun $TP";
  EXPECT_THAT(Words("NNODES=1; if (( NNODES > 1 )); " + rest), ElementsAre("run", "1"));
  EXPECT_THAT(Words("NNODES=4; if ((NNODES == 4)); " + rest), ElementsAre("run", "8"));
  EXPECT_THAT(Words("N=4; if ! (( N >= 4 && (N < 8 || $N != 4) )); " + rest), ElementsAre("run", "1"));
  EXPECT_THAT(Words("N=0; if ((!N)) && ((N <= 0)); " + rest), ElementsAre("run", "8"));
  EXPECT_THAT(Words("N=2; (( N > 1 )) && N=3; run $N"), ElementsAre("run", "3"));
  EXPECT_EQ(FirstUnknown(Words("TP=2; if (( NODES > 1 )); " + rest).back()), "$TP");
  EXPECT_EQ(FirstUnknown(Words("TP=2; if (( TP++ )); then run; fi; run $TP").back()), "$TP");
  EXPECT_EQ(FirstUnknown(Words("TP=2; (( TP = 8 )); run $TP").back()), "$TP");
  EXPECT_EQ(FirstUnknown(Words("N=2; if [[ $N > 10 ]]; " + rest).back()), "$TP") << "the order of texts, not of numbers";
}

TEST(ShellScript, TakesCommandsInConditionsAsCommands) {
  EXPECT_THAT(Words("SP=false; TP=8; if ! $SP; then TP=1; fi; run $TP"), ElementsAre("run", "1"));
  EXPECT_THAT(Words("SP=false; TP=8; if [ a = a ] && $SP; then TP=1; fi; run $TP"), ElementsAre("run", "8"));
  EXPECT_THAT(Words("SP=true; TP=8; if [ a = b ] || $SP; then TP=1; fi; run $TP"), ElementsAre("run", "1"));
  EXPECT_THAT(Words("SP=false; TP=8; $SP && TP=1; ! $SP && PP=2; run $TP $PP"), ElementsAre("run", "8", "2"));
  EXPECT_EQ(FirstUnknown(Words("TP=8; if ! grep -q x y; then TP=1; fi; run $TP").back()), "$TP");
  EXPECT_EQ(FirstUnknown(Words("TP=8; if [ a = a ] && grep -q x y; then TP=1; fi; run $TP").back()), "$TP");
}

TEST(ShellScript, ReadsDeclarations) {
  EXPECT_THAT(Words("TP=1; declare -i TP=8; run $TP"), ElementsAre("run", "8"));
  EXPECT_THAT(Words("declare -a ARGS=(--x 1); run ${ARGS[@]}"), ElementsAre("run", "--x", "1"));
  EXPECT_THAT(Words("TP=1; PP=1; export A TP=8 \"PP=2\"; run $TP $PP"), ElementsAre("run", "8", "2"));
}

TEST(ShellScript, ForgetsWhatCommandsAssign) {
  for (const std::string command : {"let TP=8", "let 'TP = 8'", "let TP++", "read -r TP < file", "printf -v TP %d 8",
                                    "mapfile -t TP < file", "if [ -f a ]; then read TP; fi"}) {
    EXPECT_EQ(FirstUnknown(Words("TP=1; " + command + "; run $TP").back()), "$TP") << command;
  }
  EXPECT_THAT(Words("TP=1; let 'PP = TP'; printf '%s' TP; run $TP"), ElementsAre("run", "1"));
}

TEST(ShellScript, NamesFilesThatItDoesNotRead) {
  const absl::StatusOr<ShellScript> script =
      ReadShellScript("source env.sh\n. \"$HOME/more.sh\"\nif [ -f a ]; then\n  source a\nfi\nls .", "run.sh", {});
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_THAT(script->sourced, ElementsAre("env.sh", "$HOME/more.sh", "a"));
}

TEST(ShellScript, KeepsAssignmentsOfSubshellsInside) {
  EXPECT_THAT(Words("TP=2; (TP=8; echo hi); run $TP"), ElementsAre("run", "2"));
  EXPECT_THAT(Words("TP=2; (TP=8; run $TP)"), ElementsAre("run", "8"));
  EXPECT_THAT(Words("TP=2; ((TP=8); (run $TP)); run $TP"), ElementsAre("run", "2"));
  EXPECT_THAT(Words("TP=2; (TP=8; (TP=9); run $TP)"), ElementsAre("run", "8"));
  EXPECT_THAT(Words("TP=2; (case $A in a) TP=3;; (b) TP=4;; esac; PP=1); run $TP ${PP:-7}"), ElementsAre("run", "2", "7"));
}

TEST(ShellScript, KeepsWhatStoodBeforeWordsThatATestMayAdd) {
  const std::string test = "if [ -n \"$WANDB\" ]; then ARGS+=";
  const std::vector<std::string> text = Words("ARGS='--x 1'; " + test + "' --wandb'; fi; run $ARGS");
  ASSERT_EQ(text.size(), 4U);
  EXPECT_EQ(text[2], "1");
  EXPECT_TRUE(IsUnknownRest(text[3]));
  const std::vector<std::string> array = Words("ARGS=(--x 1); " + test + "(--wandb); fi; run ${ARGS[@]}");
  ASSERT_EQ(array.size(), 4U);
  EXPECT_TRUE(IsUnknownRest(array[3]));
  EXPECT_THAT(Words("ARGS='--x 1'; " + test + "' --wandb'; fi; run $ARGS", {{"WANDB", ""}}), ElementsAre("run", "--x", "1"));
  EXPECT_EQ(FirstUnknown(Words("ARGS=4; " + test + "0; fi; run $ARGS").back()), "$ARGS");
}

TEST(ShellScript, ShowsUnknownPartsInsideOthersAsText) {
  const std::string word = Words("run \"a $X\"").back();
  EXPECT_EQ(FirstUnknown(SplitShellWords(word)->back()), "$X");
}

TEST(ShellScript, GivenValuesTakeThePlaceOfAssigned) {
  EXPECT_THAT(Words("TP=4\nrun $TP ${PP:-2} $1", {{"TP", "8"}, {"PP", "1"}, {"1", "x"}}), ElementsAre("run", "8", "1", "x"));
  EXPECT_THAT(Words("run $EXTRA", {{"EXTRA", ""}}), ElementsAre("run"));
  EXPECT_THAT(ErrorOf("run a", {{"TP", "8"}}), HasSubstr("--set TP: run.sh does not use a variable of this name"));
}

TEST(ShellScript, SaysWhatIsNotClosed) {
  EXPECT_THAT(ErrorOf("run a\nrun \"b"), HasSubstr("run.sh:2: a quote \" is not closed"));
  EXPECT_THAT(ErrorOf("A=( a b"), HasSubstr("the array A is not closed"));
  EXPECT_THAT(ErrorOf("A=( a & b )"), HasSubstr("'&' inside the array A"));
  EXPECT_THAT(ErrorOf("run ${A"), HasSubstr("'${' is not closed"));
  EXPECT_THAT(ErrorOf("if [ a = a ]; then\nrun"), HasSubstr("run.sh:1: 'if' has no end"));
  EXPECT_THAT(ErrorOf(std::string("run \x01", 5)), HasSubstr("is this a script?"));
}

TEST(ShellScript, EndsOnManySubshells) {
  EXPECT_THAT(Words(std::string(900'000, '(') + "\nrun"), ElementsAre("run"));
  std::string deep = "run";
  for (int i = 0; i < 1000; ++i) deep = "( " + deep + " )";
  EXPECT_THAT(ErrorOf(deep), HasSubstr("too many blocks"));
  std::string many = "B=" + std::string(100'000, 'x') + "\n";
  for (int i = 0; i < 100'000; ++i) many += "(A=)";
  EXPECT_THAT(Words(many + "\nrun ${A:-1}"), ElementsAre("run", "1"));
}

TEST(ShellScript, EndsOnDeepNesting) {
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "\"$(";
  EXPECT_THAT(ErrorOf("run " + deep), HasSubstr("is not closed"));
  std::string growing = "A=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 64; ++i) growing += "A=$A$A\n";
  EXPECT_TRUE(HasUnknown(Words(growing + "run $A").back())) << "a value that grows without end is not kept";
}

TEST(ShellScript, SplitsALine) {
  EXPECT_THAT(*SplitShellWords("torchrun a.py --x 'b c'"), ElementsAre("torchrun", "a.py", "--x", "b c"));
  EXPECT_FALSE(SplitShellWords("a 'b").ok());
}

}  // namespace
}  // namespace lynx::cli

#include "bench/throughput/pytorch_side.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "node/command.h"

namespace lynx::bench {
namespace {

constexpr char kPeakMemory[] = "peak_bytes ";  // the script prints this word before the number of bytes

std::vector<std::string> CommandOf(const PytorchSettings& settings) {
  const auto text = [](auto value) { return absl::StrCat(value); };
  const ModelSpec& model = settings.model;
  std::vector<std::string> command;
  if (settings.device == DeviceKind::kCuda) command = {"/usr/bin/env", "CUDA_VISIBLE_DEVICES=" + settings.gpu};
  if (command.empty() && !absl::StrContains(settings.python, '/')) command = {"/usr/bin/env"};
  command.insert(command.end(), {settings.python,  settings.script,
                                 "--family",       EnumName(model.family),
                                 "--layers",       text(model.layers),
                                 "--hidden",       text(model.hidden),
                                 "--heads",        text(model.heads),
                                 "--kv-heads",     text(model.key_heads()),
                                 "--ffn",          text(model.ffn),
                                 "--seq",          text(model.seq),
                                 "--vocab",        text(model.vocab),
                                 "--batch",        text(settings.micro_batch),
                                 "--microbatches", text(settings.microbatches),
                                 "--steps",        text(settings.steps),
                                 "--warmup",       text(settings.warmup),
                                 "--dropout",      text(model.dropout),
                                 "--cores",        absl::StrJoin(settings.cores, ","),
                                 "--data",         settings.data,
                                 "--dtype",        EnumName(model.dtype),
                                 "--device",       EnumName(settings.device)});
  if (model.tied_embeddings) command.push_back("--tied");
  if (settings.compile) command.push_back("--compile");
  return command;
}

absl::Status ErrorOf(const absl::Status& status, const PytorchSettings& settings) {
  const std::string text(status.message());
  if (absl::StrContains(text, "No module named 'torch'")) {
    return absl::NotFoundError(absl::StrCat("PyTorch is missing: ", settings.python, " cannot import torch"));
  }
  if (absl::StrContains(text, "has no torch.compile")) return absl::NotFoundError(text);
  if (absl::StrContains(text, "exit code 127")) return absl::NotFoundError(absl::StrCat(settings.python, " is not installed"));
  if (absl::StrContains(text, "out of memory")) return absl::ResourceExhaustedError(absl::StrCat(settings.script, ": ", text));
  return Annotate(status, settings.script);
}

}  // namespace

absl::StatusOr<PytorchRun> TrainWithPytorch(const PytorchSettings& settings) {
  const CommandResult result = RunCommands({CommandOf(settings)}, settings.limit, WakeEvent()).front();
  if (!result.status.ok()) return ErrorOf(result.status, settings);
  PytorchRun run;
  for (absl::string_view line : absl::StrSplit(result.output, '\n', absl::SkipEmpty())) {
    double milliseconds = 0;
    int64_t bytes = 0;
    if (absl::ConsumePrefix(&line, kPeakMemory) && absl::SimpleAtoi(line, &bytes)) {
      run.peak_memory = Bytes(bytes);
    } else if (absl::SimpleAtod(line, &milliseconds)) {
      run.step_ms.push_back(milliseconds);
    } else {
      return absl::InternalError(absl::StrCat(settings.script, " printed '", line, "', which is no time"));
    }
  }
  if (run.step_ms.empty()) return absl::InternalError(absl::StrCat(settings.script, " printed no times"));
  return run;
}

}  // namespace lynx::bench

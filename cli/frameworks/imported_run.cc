#include "cli/frameworks/imported_run.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

// The file's name without its extension. Characters that names of jobs cannot have are replaced.
std::string NameOf(const std::string& file) {
  std::string name;
  for (const char c : std::filesystem::path(file).stem().string()) {
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
    const bool kept = absl::ascii_isalnum(static_cast<unsigned char>(lower));
    if (kept || (!name.empty() && name.back() != '-')) name += kept ? lower : '-';
  }
  constexpr size_t kMaxNameLength = 48;
  name = name.substr(0, kMaxNameLength);
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "imported" : name;
}

void AddList(const std::string& title, const std::vector<std::string>& lines, std::string& text) {
  if (lines.empty()) return;
  absl::StrAppend(&text, title, "\n");
  for (const std::string& line : lines) absl::StrAppend(&text, "  - ", line, "\n");
}

}  // namespace

absl::StatusOr<ImportedRun> ImportRun(Framework framework, const ImportRequest& request) {
  if (!request.model.empty() && (framework == Framework::kMegatron || framework == Framework::kNemo)) {
    return absl::InvalidArgumentError(absl::StrCat("--model ", request.model_file, ": runs of ", EnumName(framework),
                                                   " describe the model themselves; leave it out"));
  }
  switch (framework) {
    case Framework::kMegatron: return ImportMegatron(request);
    case Framework::kDeepspeed: return ImportDeepspeed(request);
    case Framework::kNemo: return ImportNemo(request);
    case Framework::kTorchtitan: return ImportTorchtitan(request);
    default: break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("runs of ", EnumName(framework), " are not read; known: ", ImportedFrameworksText()));
}

std::string ImportedFrameworksText() { return "megatron, deepspeed, torchtitan or nemo"; }

absl::Status FinishImport(const ImportRequest& request, ImportedRun& run) {
  run.job.name = NameOf(request.file);
  Normalize(run.job);
  absl::StatusOr<JobSpec> job = ParseJobFile(JobFileText(run.job), absl::StrCat(request.file, " as a job file"), request.folder,
                                             request.overrides, request.read);
  if (!job.ok()) return job.status();
  run.job = *std::move(job);
  const int64_t replicas = int64_t{run.job.train.micro_batch} * run.job.parallel.dp;
  if (replicas > 0 && run.job.train.global_batch % replicas != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.file, ": train.globalBatch ", run.job.train.global_batch, " is no multiple of train.microBatch ",
        run.job.train.micro_batch, " * parallel.dp ", run.job.parallel.dp, "; correct the values that --set gives"));
  }
  return absl::OkStatus();
}

std::string ImportRemarks(const ImportedRun& run) {
  std::string text;
  AddList("assumed, because the file does not say it:", run.assumed, text);
  AddList("without a counterpart in a job:", run.not_taken, text);
  AddList("unknown to Lynx, and left out:", run.unknown, text);
  return text;
}

std::string ImportedJobFile(const ImportedRun& run, const std::string& file) {
  std::string text = absl::StrCat("# Read from ", file, ", a run of ", EnumName(run.framework), ".\n");
  std::string line = "# ";
  for (const char c : ImportRemarks(run)) {
    if (c == '\n') {
      absl::StrAppend(&text, line, "\n");
      line = "# ";
    } else {
      line += c;
    }
  }
  return text + JobFileText(run.job);
}

}  // namespace lynx::cli

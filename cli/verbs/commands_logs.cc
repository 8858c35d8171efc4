// logs: prints what a job's ranks wrote.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "cli/connect/log_printer.h"
#include "cli/output/exit_code.h"
#include "cli/output/render.h"
#include "cli/verbs/commands.h"
#include "common/clock.h"
#include "common/status.h"
#include "common/utf8.h"
#include "planner/problem/layout.h"
#include "proto/convert.h"

namespace lynx::cli {
namespace {

constexpr Nanos kPatience{120'000'000'000};
constexpr Nanos kPollEvery{300'000'000};
constexpr int32_t kMaxLines = 1000;

// True if the server cannot be reached or is too busy to accept calls.
bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

// The ranks of a stage in the job's present plan, and the attempt that uses this plan.
struct StageRanks {
  std::set<int32_t> ranks;
  int64_t attempt = 0;
};
absl::StatusOr<StageRanks> RanksOf(Client& client, const std::string& id, int32_t stage) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  LYNX_ASSIGN_OR_RETURN(const v1::Job job, client.Get(request));
  if (!job.has_plan()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--stage ", stage, ": job ", job.id(), ", which is ", StateName(job.state()), ", has no plan yet"));
  }
  LYNX_ASSIGN_OR_RETURN(const Plan plan, FromProto(job.plan(), PlanPrograms::kLeftOut));
  if (stage >= plan.layout.pp) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stage ", stage, ": the plan has stages 0 to ", plan.layout.pp - 1, " (", LayoutText(plan.layout), ")"));
  }
  StageRanks found{.attempt = job.generation()};
  for (int32_t rank = 0; rank < plan.layout.ranks(); ++rank) {
    if (CoordinatesOf(plan.layout, rank).stage == stage) found.ranks.insert(rank);
  }
  return found;
}

Listing LogListing(const v1::GetLogsResponse& response) {
  Listing listing{.columns = {{"RANK", "rank"}, {"ATTEMPT", "attempt"}, {"SEQUENCE", "sequence"}, {"TEXT", "text"}}};
  for (const v1::LogLine& line : response.lines()) {
    listing.rows.push_back(
        {absl::StrCat(line.rank()), absl::StrCat(line.generation()), absl::StrCat(line.sequence()), line.text()});
  }
  return listing;
}

// Puts the lines of the first rank that failed before all other lines.
void PutFailureFirst(v1::GetLogsResponse& response) {
  if (!response.has_first_failure()) return;
  const v1::FailedRank& failed = response.first_failure();
  std::stable_partition(response.mutable_lines()->begin(), response.mutable_lines()->end(), [&](const v1::LogLine& line) {
    return line.rank() == failed.rank() && line.generation() == failed.generation();
  });
}

int PrintLogs(const GlobalOptions& global, v1::GetLogsResponse response) {
  PutFailureFirst(response);
  if (global.output != OutputFormat::kTable && global.output != OutputFormat::kWide)
    return Show(global.output, response, LogListing(response));
  if (response.lines().empty()) std::fprintf(stderr, "no rank of this job has written anything\n");
  if (response.has_first_failure()) {
    std::fprintf(stderr, "rank %d failed first, in attempt %lld\n", response.first_failure().rank(),
                 static_cast<long long>(response.first_failure().generation()));
  }
  for (const v1::LogLine& line : response.lines()) PrintLogLine(line);
  return kExitOk;
}

absl::Status CheckLogs(const GlobalOptions& global, const LogsOptions& options) {
  if (options.rank >= 0 && options.stage >= 0) return absl::InvalidArgumentError("--rank and --stage: give one of them");
  if (!options.follow) return absl::OkStatus();
  return Annotate(CheckOutput(global.output, {OutputFormat::kTable, OutputFormat::kWide}), "--follow");
}

}  // namespace

void PrintLogLine(const v1::LogLine& line) {
  std::printf("[rank %d g%lld] %s\n", line.rank(), static_cast<long long>(line.generation()), VisibleLine(line.text()).c_str());
}

absl::Status FollowLogs(Client& client, v1::GetLogsRequest request, const std::function<void(const v1::LogLine&)>& each) {
  const RealClock clock;
  std::optional<Nanos> lost_at;
  bool heard = false;
  while (true) {
    auto response = client.Logs(request);
    if (!response.ok()) {
      if (!heard || !IsAway(response.status())) return response.status();
      if (!lost_at.has_value()) std::fprintf(stderr, "the server is away; training goes on; trying again\n");
      lost_at = lost_at.value_or(clock.Monotonic());
      if (clock.Monotonic() - *lost_at > kPatience) return response.status();
      client.Pause(kPollEvery);
      continue;
    }
    heard = true;
    lost_at.reset();
    auto& lines = *response->mutable_lines();
    std::sort(lines.begin(), lines.end(),
              [](const v1::LogLine& a, const v1::LogLine& b) { return a.sequence() < b.sequence(); });
    for (const v1::LogLine& line : lines) {
      each(line);
      request.set_after(std::max(request.after(), line.sequence()));
    }
    std::fflush(stdout);
    request.set_lines(kMaxLines);
    if (lines.empty() && IsFinal(response->state())) return absl::OkStatus();
    if (lines.empty()) client.Pause(kPollEvery);
  }
}

int Logs(const GlobalOptions& global, const LogsOptions& options) {
  if (const absl::Status checked = CheckLogs(global, options); !checked.ok()) return Fail(checked);
  Client client = Connect(global);
  v1::GetLogsRequest request;
  request.set_job_id(options.job);
  request.set_rank(options.rank);
  request.set_lines(options.lines);
  request.set_generation(options.attempt);
  std::set<int32_t> ranks;
  if (options.stage >= 0) {
    const absl::StatusOr<StageRanks> stage = RanksOf(client, options.job, options.stage);
    if (!stage.ok()) return Fail(stage.status());
    ranks = stage->ranks;
    if (options.attempt == 0) request.set_generation(stage->attempt);
  }
  const auto wanted = [&](const v1::LogLine& line) { return ranks.empty() || ranks.contains(line.rank()); };
  if (options.follow) {
    // The requests below name the job by its id, because another job may take the name.
    v1::GetJobRequest named;
    named.set_job_id(options.job);
    const auto job = client.Get(named);
    if (!job.ok()) return Fail(job.status());
    request.set_job_id(job->id());
    const absl::Status followed = FollowLogs(client, request, [&](const v1::LogLine& line) {
      if (wanted(line)) PrintLogLine(line);
    });
    return followed.ok() ? kExitOk : Fail(followed);
  }
  auto response = client.Logs(request);
  if (!response.ok()) return Fail(response.status());
  auto& lines = *response->mutable_lines();
  lines.erase(std::remove_if(lines.begin(), lines.end(), [&](const v1::LogLine& line) { return !wanted(line); }), lines.end());
  return PrintLogs(global, *std::move(response));
}

}  // namespace lynx::cli

// See texts.h.
#include "report/texts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace lynx {

std::string StateName(v1::JobState state) {
  absl::string_view name = v1::JobState_Name(state);
  return absl::ConsumePrefix(&name, "JOB_STATE_") ? std::string(name) : absl::StrCat("UNKNOWN(", int{state}, ")");
}

std::string UtcTime(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
}

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED;
}

CoreWaitOfStep CoreWaitOf(const v1::Job& job) {
  CoreWaitOfStep most;
  bool measured = false;
  const auto predicted = [&](int stage) {
    return stage < job.plan().stages_size() ? job.plan().stages(stage).core_wait_ns() : 0;
  };
  for (const v1::StageMeasurement& m : job.measured()) {
    if (m.step_ns() <= 0) continue;
    const double share = static_cast<double>(m.core_wait_ns()) / static_cast<double>(m.step_ns());
    if (!measured || share > most.share) most = {m.core_wait_ns(), share, predicted(m.stage())};
    measured = true;
  }
  for (int stage = 0; !measured && stage < job.plan().stages_size(); ++stage) {
    most.predicted_ns = std::max(most.predicted_ns, predicted(stage));
  }
  return most;
}

std::string Count(double value) {
  if (value >= 1e9) return absl::StrFormat("%.3gG", value / 1e9);
  if (value >= 1e6) return absl::StrFormat("%.3gM", value / 1e6);
  if (value >= 1e3) return absl::StrFormat("%.3gk", value / 1e3);
  return absl::StrFormat("%.3g", value);
}

bool HasExpertLoad(const v1::Job& job) { return job.progress().expert_skew() > 0; }

std::string SkewText(double skew) { return absl::StrFormat("%.2fx", skew); }

std::string ExpertLoadText(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  const bool all_have_room = progress.expert_dropped_ratio() == 0 && progress.expert_rounds() == 0;
  return absl::StrCat(SkewText(progress.expert_skew()), all_have_room ? "" : absl::StrCat(", ", WithoutRoomText(progress, "")));
}

std::string WithoutRoomText(const v1::Progress& progress, const char* rows) {
  const int64_t rounds = progress.expert_rounds();
  const double ratio = rounds == 0 ? progress.expert_dropped_ratio() : progress.expert_in_rounds_ratio();
  return absl::StrCat(absl::StrFormat("%.1f%%", 100 * ratio), *rows == '\0' ? "" : " ", rows,
                      rounds == 0 ? " dropped" : absl::StrCat(" in ", rounds, " rounds"));
}

}  // namespace lynx

// See metric_table.h.
#include "common/metric_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace lynx::metric {
namespace {

constexpr const Metric* kAll[] = {
    &kBuildInfo,
    // lynx-server
    &kJobs,
    &kJobsPending,
    &kJobsSubmitted,
    &kJobsEnded,
    &kQueueWait,
    &kFirstStep,
    &kNodes,
    &kNodesCordoned,
    &kAgentsAttached,
    &kWorkersAttached,
    &kDevices,
    &kDevicesUsed,
    &kDeviceSeconds,
    &kDeviceSecondsLost,
    &kRecovery,
    &kLeading,
    &kLeaseEpoch,
    &kPlanSeconds,
    &kStoreCommitSeconds,
    &kStoreCommitFailures,
    &kEventQueue,
    &kOutboxLength,
    &kLeasesRenewed,
    &kFencedReports,
    &kCalls,
    &kCallSeconds,
    &kCallsRefused,
    &kJobInfo,
    &kJobRanks,
    &kJobTargetSteps,
    &kJobDoneSteps,
    &kJobSteps,
    &kJobTokens,
    &kJobModelFlops,
    &kJobStepsSkipped,
    &kJobLoss,
    &kJobValidationLoss,
    &kJobGradientNorm,
    &kJobLearningRate,
    &kJobStepSeconds,
    &kJobStageStepSeconds,
    &kJobPredictedStep,
    &kJobStepError,
    &kJobPhaseSeconds,
    &kJobPredictedPhase,
    &kJobHiddenRatio,
    &kJobBubbleRatio,
    &kJobCommunicationRatio,
    &kJobCoreWaitRatio,
    &kJobExpertSkew,
    &kJobExpertSkewPlanned,
    &kJobExpertPeak,
    &kJobExpertFullest,
    &kJobExpertRows,
    &kJobExpertRowsDropped,
    &kJobExpertRowsInRounds,
    &kJobExpertRounds,
    &kJobMfu,
    &kJobMemoryPlanned,
    &kJobMemoryMeasured,
    &kJobMemoryError,
    &kJobCheckpoints,
    &kJobCheckpointFailures,
    &kJobCheckpointBytes,
    &kJobCheckpointSteps,
    &kJobCheckpointTime,
    &kJobCopiedSteps,
    &kJobCopiesSkipped,
    &kJobRestarts,
    &kJobReplans,
    &kJobResumesFromCopies,
    &kJobDeviceSeconds,
    &kJobGoodput,
    // lynx-agent
    &kAgentAttached,
    &kMeasurements,
    &kMeasurementSeconds,
    &kGpuUtilization,
    &kGpuMemoryUtilization,
    &kGpuMemoryUsed,
    &kGpuMemoryFree,
    &kGpuSmClock,
    &kGpuMemoryClock,
    &kGpuTemperature,
    &kGpuPower,
    &kGpuXid,
    &kGpuEccErrors,
    &kGpuThrottleReasons,
    // lynx-worker
    &kWorkerAttached,
    &kRanksRunning,
    &kRankExits,
    &kWorkerSteps,
    &kWorkerBytesSent,
    &kWorkerCoreWait,
    &kRankSteps,
    &kRankTokens,
    &kRankLoss,
    &kRankStepSeconds,
    &kRankPhaseSeconds,
    &kRankBytesSent,
    &kRankArenaPeak,
    &kRankResident,
};

constexpr char kIntroduction[] = R"(# Metrics

Every daemon serves these metrics at `/metrics` in Prometheus' text format: `lynx-server` at 127.0.0.1:7471 or where
`--metrics-address` says, `lynx-agent` and `lynx-worker` where their own `--metrics-address` says. Times are in seconds and
sizes in bytes. Shares are between 0 and 1; only errors of predictions may be negative or larger. Counters are 0 when their daemon
starts. A histogram has the series `_bucket` (label `le`), `_sum` and `_count`.

A label has few values, or one value for each job, stage or GPU; no label is a step. The series of a job begin when it gets
devices for the first time, and are dropped 15 minutes after its end. The series of single ranks (`lynx_rank_`) grow with the cluster, so
a `lynx-worker` serves them only if it was started with `--rank-metrics`.

This page is made from `common/metric_names.h`. A test compares the two, and another test compares the page with what running daemons
serve.
)";

std::string Row(const Metric& metric) {
  std::string labels;
  for (const std::string& label : LabelsOf(metric)) absl::StrAppend(&labels, labels.empty() ? "" : ", ", "`", label, "`");
  return absl::StrCat("| `", metric.name, "` | ", TypeName(metric.type), " | ", metric.unit, " | ", labels, " | ",
                      absl::StrReplaceAll(metric.help, {{"|", "\\|"}}), " |\n");
}

}  // namespace

std::span<const Metric* const> AllMetrics() { return kAll; }

bool IsListed(const Metric& metric) { return std::find(std::begin(kAll), std::end(kAll), &metric) != std::end(kAll); }

std::vector<std::string> LabelsOf(const Metric& metric) {
  return absl::StrSplit(metric.labels, absl::ByString(", "), absl::SkipEmpty());
}

const char* TypeName(Type type) {
  static constexpr const char* kNames[] = {"counter", "gauge", "histogram"};
  return kNames[static_cast<size_t>(type)];
}

const char* DaemonName(Daemon daemon) {
  static constexpr const char* kNames[] = {"lynx-server", "lynx-agent", "lynx-worker", "every daemon"};
  return kNames[static_cast<size_t>(daemon)];
}

std::string MetricPage() {
  std::string page = kIntroduction;
  for (const Daemon daemon : {Daemon::kEvery, Daemon::kServer, Daemon::kAgent, Daemon::kWorker}) {
    absl::StrAppend(&page, "\n## ", daemon == Daemon::kEvery ? "Every daemon" : DaemonName(daemon),
                    "\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    for (const Metric* metric : kAll) {
      if (metric->daemon == daemon) absl::StrAppend(&page, Row(*metric));
    }
  }
  return page;
}

}  // namespace lynx::metric

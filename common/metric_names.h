// Every metric that a Lynx daemon serves, in one place: daemons register only what stands here (node/metric_families.h), and
// docs/metrics.md is made from it. Base units (seconds, bytes); shares from 0 to 1 end in `_ratio`; counters end in `_total`;
// names begin with `lynx_`, but for those of GPUs. Labels have few values, or one for each job, stage or node that there is; never a
// step. Constants only; a new one also goes into the list in metric_table.cc.
#ifndef LYNX_COMMON_METRIC_NAMES_H_
#define LYNX_COMMON_METRIC_NAMES_H_

#include <cstdint>

namespace lynx::metric {

enum class Type : uint8_t { kCounter, kGauge, kHistogram };
enum class Daemon : uint8_t { kServer, kAgent, kWorker, kEvery };

struct Metric {
  const char* name;
  Type type;
  const char* unit;    // "s", "B", "1" where there is none
  const char* labels;  // names, with ", "; "" = none
  Daemon daemon;
  const char* help;    // a sentence, with the labels' values
};

// ---- every daemon ----
inline constexpr Metric kBuildInfo{"lynx_build_info", Type::kGauge, "1", "version", Daemon::kEvery,
                                   "Always 1; the label says which version this is."};

// ---- lynx-server ----
inline constexpr Metric kJobs{"lynx_jobs", Type::kGauge, "1", "state", Daemon::kServer,
                              "Jobs by state: queued, planning, starting, running, succeeded, failed, cancelled."};
inline constexpr Metric kAgentsAttached{"lynx_agents_attached", Type::kGauge, "1", "", Daemon::kServer,
                                        "Agents with a live stream to the server."};
inline constexpr Metric kWorkersAttached{"lynx_workers_attached", Type::kGauge, "1", "", Daemon::kServer,
                                         "Worker daemons with a live stream to the server."};
inline constexpr Metric kPlanSeconds{"lynx_plan_duration_seconds", Type::kHistogram, "s", "result", Daemon::kServer,
                                     "Time to make one plan, by result: plan, infeasible, error."};
inline constexpr Metric kStoreCommitSeconds{"lynx_store_commit_seconds", Type::kHistogram, "s", "", Daemon::kServer,
                                            "Time of one durable commit to the store."};
inline constexpr Metric kStoreCommitFailures{"lynx_store_commit_failures_total", Type::kCounter, "1", "", Daemon::kServer,
                                             "Commits that the store refused."};
inline constexpr Metric kEventQueue{"lynx_event_queue_length", Type::kGauge, "1", "", Daemon::kServer,
                                    "Events that wait for the server's owner thread."};

// Per job: labels job_id and job_name. Not `job`, which is what Prometheus calls
// the target that it has scraped.
inline constexpr Metric kJobRestarts{"lynx_job_restarts_total", Type::kCounter, "1", "job_id, job_name", Daemon::kServer,
                                     "Automatic restarts of the job."};
inline constexpr Metric kJobReplans{"lynx_job_replans_total", Type::kCounter, "1", "job_id, job_name, decision", Daemon::kServer,
                                    "Times that the job, which had a plan, was planned again, by decision: kept, the plan that it "
                                    "had; adopted, a better one for more devices; forced, one for fewer or others."};
inline constexpr Metric kJobResumesFromCopies{"lynx_job_resumes_from_copies_total", Type::kCounter, "1", "job_id, job_name", Daemon::kServer,
                                              "Times that the job went on from copies of its states in the memory of nodes."};
inline constexpr Metric kJobSteps{"lynx_job_steps_total", Type::kCounter, "1", "job_id, job_name", Daemon::kServer,
                                  "Training steps that the job has done; one that is done again counts once."};
inline constexpr Metric kJobTokens{"lynx_job_tokens_total", Type::kCounter, "1", "job_id, job_name", Daemon::kServer,
                                   "Tokens that the job has trained on; those of a step that is done again count once."};
inline constexpr Metric kJobLoss{"lynx_job_loss", Type::kGauge, "nats", "job_id, job_name", Daemon::kServer,
                                 "Loss of the newest step, in nats per token."};
inline constexpr Metric kJobValidationLoss{"lynx_job_validation_loss", Type::kGauge, "nats", "job_id, job_name", Daemon::kServer,
                                           "Loss of the newest evaluation on held-out data, in nats per token."};
inline constexpr Metric kJobGradientNorm{"lynx_job_gradient_norm", Type::kGauge, "1", "job_id, job_name", Daemon::kServer,
                                         "Global gradient norm of the newest step."};
inline constexpr Metric kJobStepSeconds{"lynx_job_step_seconds", Type::kHistogram, "s", "job_id, job_name", Daemon::kServer,
                                        "Duration of steps on rank 0."};
inline constexpr Metric kJobPhaseSeconds{
    "lynx_job_phase_seconds_total", Type::kCounter, "s", "job_id, job_name, phase", Daemon::kServer,
    "Compute stream time by phase, summed over the ranks of the job: forward, backward, weight, recompute_hidden, "
    "recompute_exposed, tensor_wait, stall, data_parallel_wait, norm_wait, optimizer, checkpoint."};
inline constexpr Metric kJobMemoryPlanned{"lynx_job_memory_peak_planned_bytes", Type::kGauge, "B", "job_id, job_name, stage", Daemon::kServer,
                                          "Planned activation peak of a rank, by stage."};
inline constexpr Metric kJobMemoryMeasured{"lynx_job_memory_peak_measured_bytes", Type::kGauge, "B", "job_id, job_name, stage",
                                           Daemon::kServer, "Largest measured activation peak of a rank, by stage."};

// ---- lynx-agent ----
inline constexpr Metric kAgentAttached{"lynx_agent_attached", Type::kGauge, "1", "", Daemon::kAgent,
                                       "Whether the agent holds a stream to its server: 1 or 0."};
inline constexpr Metric kMeasurements{"lynx_agent_measurements_total", Type::kCounter, "1", "kind, result", Daemon::kAgent,
                                      "Measurements asked for, by kind: shape, link; and result: measured, cached, failed."};
inline constexpr Metric kMeasurementSeconds{"lynx_agent_measurement_seconds_total", Type::kCounter, "s", "kind", Daemon::kAgent,
                                            "Time spent on measuring, by kind: shape, link."};

// Per GPU, under the names, units and labels of NVIDIA's DCGM exporter: the only names that do not begin with `lynx_`.
inline constexpr const char* kGpuLabels = "gpu, UUID, modelName, Hostname";
inline constexpr Metric kGpuUtilization{"DCGM_FI_DEV_GPU_UTIL", Type::kGauge, "%", kGpuLabels, Daemon::kAgent,
                                        "Share of time in which a kernel ran."};
inline constexpr Metric kGpuMemoryUtilization{"DCGM_FI_DEV_MEM_COPY_UTIL", Type::kGauge, "%", kGpuLabels, Daemon::kAgent,
                                              "Share of time in which memory was read or written."};
inline constexpr Metric kGpuMemoryUsed{"DCGM_FI_DEV_FB_USED", Type::kGauge, "MiB", kGpuLabels, Daemon::kAgent, "Memory in use."};
inline constexpr Metric kGpuMemoryFree{"DCGM_FI_DEV_FB_FREE", Type::kGauge, "MiB", kGpuLabels, Daemon::kAgent, "Memory that is free."};
inline constexpr Metric kGpuSmClock{"DCGM_FI_DEV_SM_CLOCK", Type::kGauge, "MHz", kGpuLabels, Daemon::kAgent,
                                    "Clock of the multiprocessors."};
inline constexpr Metric kGpuMemoryClock{"DCGM_FI_DEV_MEM_CLOCK", Type::kGauge, "MHz", kGpuLabels, Daemon::kAgent,
                                        "Clock of the memory."};
inline constexpr Metric kGpuTemperature{"DCGM_FI_DEV_GPU_TEMP", Type::kGauge, "C", kGpuLabels, Daemon::kAgent, "Temperature."};
inline constexpr Metric kGpuPower{"DCGM_FI_DEV_POWER_USAGE", Type::kGauge, "W", kGpuLabels, Daemon::kAgent, "Power drawn."};
inline constexpr Metric kGpuXid{"DCGM_FI_DEV_XID_ERRORS", Type::kGauge, "1", kGpuLabels, Daemon::kAgent,
                                "The newest Xid since the agent started; 0: none."};
inline constexpr Metric kGpuEccErrors{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", Type::kGauge, "1", kGpuLabels, Daemon::kAgent,
                                      "Uncorrected memory errors since the driver was loaded."};
inline constexpr Metric kGpuThrottleReasons{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", Type::kGauge, "bits", kGpuLabels, Daemon::kAgent,
                                            "What holds clocks down; 0: nothing."};

// ---- lynx-worker ----
inline constexpr Metric kWorkerAttached{"lynx_worker_attached", Type::kGauge, "1", "", Daemon::kWorker,
                                        "Whether the worker daemon holds a stream to its server: 1 or 0."};
inline constexpr Metric kRanksRunning{"lynx_worker_ranks_running", Type::kGauge, "1", "", Daemon::kWorker,
                                      "Rank processes that run on this node."};
inline constexpr Metric kRankExits{"lynx_worker_rank_exits_total", Type::kCounter, "1", "outcome", Daemon::kWorker,
                                   "Rank processes that ended, by outcome: done, failed, peer_lost, stopped, killed."};
inline constexpr Metric kWorkerSteps{"lynx_worker_steps_total", Type::kCounter, "1", "", Daemon::kWorker,
                                     "Training steps that the ranks of this node have done, of all of them together."};
inline constexpr Metric kWorkerBytesSent{"lynx_worker_bytes_sent_total", Type::kCounter, "B", "", Daemon::kWorker,
                                         "Bytes that the ranks of this node have sent to their peers."};

// Per rank on this node, where `lynx-worker --rank-metrics` asks for them: labels job_id and rank.
inline constexpr Metric kRankSteps{"lynx_rank_steps_total", Type::kCounter, "1", "job_id, rank", Daemon::kWorker,
                                   "Training steps that the rank has done."};
inline constexpr Metric kRankTokens{"lynx_rank_tokens_total", Type::kCounter, "1", "job_id, rank", Daemon::kWorker,
                                    "Tokens of the global batches that the rank has worked on; every rank of a job counts the "
                                    "same ones."};
inline constexpr Metric kRankLoss{"lynx_rank_loss", Type::kGauge, "nats", "job_id, rank", Daemon::kWorker,
                                  "Loss of the newest step, in nats per token."};
inline constexpr Metric kRankStepSeconds{"lynx_rank_step_seconds", Type::kHistogram, "s", "job_id, rank", Daemon::kWorker,
                                         "Duration of the rank's steps."};
inline constexpr Metric kRankPhaseSeconds{
    "lynx_rank_phase_seconds_total", Type::kCounter, "s", "job_id, rank, phase", Daemon::kWorker,
    "Compute stream time of the rank by phase: forward, backward, weight, recompute_hidden, recompute_exposed, tensor_wait, stall, "
    "data_parallel_wait, norm_wait, optimizer, checkpoint."};
inline constexpr Metric kRankBytesSent{"lynx_rank_bytes_sent_total", Type::kCounter, "B", "job_id, rank", Daemon::kWorker,
                                       "Bytes that the rank has sent to its peers."};
inline constexpr Metric kRankArenaPeak{"lynx_rank_arena_peak_bytes", Type::kGauge, "B", "job_id, rank", Daemon::kWorker,
                                       "Highest byte of the activation arena that the rank has used."};

}  // namespace lynx::metric

#endif  // LYNX_COMMON_METRIC_NAMES_H_

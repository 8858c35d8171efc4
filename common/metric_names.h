// The names and help texts of every metric that a Lynx daemon serves, in one place: dashboards, rules and tests read this
// list. Base units (seconds, bytes); counters end in `_total`; names begin with `lynx_`, but for those of GPUs. Constants only.
#ifndef LYNX_COMMON_METRIC_NAMES_H_
#define LYNX_COMMON_METRIC_NAMES_H_

namespace lynx::metric {

struct Metric {
  const char* name;
  const char* help;
};

// ---- lynx-server ----
inline constexpr Metric kJobs{"lynx_jobs", "Jobs by state (label state)."};
inline constexpr Metric kAgentsAttached{"lynx_agents_attached", "Agents with a live stream to the server."};
inline constexpr Metric kWorkersAttached{"lynx_workers_attached", "Worker daemons with a live stream to the server."};
inline constexpr Metric kPlanSeconds{"lynx_plan_duration_seconds", "Time to make one plan (label result)."};
inline constexpr Metric kStoreCommitSeconds{"lynx_store_commit_seconds", "Time of one durable commit to the store."};
inline constexpr Metric kStoreCommitFailures{"lynx_store_commit_failures_total", "Commits that the store refused."};
inline constexpr Metric kEventQueue{"lynx_event_queue_length", "Events that wait for the server's owner thread."};

// Per job: labels job (id) and name.
inline constexpr Metric kJobRestarts{"lynx_job_restarts_total", "Automatic restarts of the job."};
inline constexpr Metric kJobReplans{"lynx_job_replans_total",
                                    "Times that the job, which had a plan, was planned again (label decision: kept, the plan "
                                    "that it had; adopted, a better one for more devices; forced, one for fewer or others)."};
inline constexpr Metric kJobResumesFromCopies{"lynx_job_resumes_from_copies_total",
                                              "Times that the job went on from copies of its states in the memory of nodes."};
inline constexpr Metric kJobSteps{"lynx_job_steps_total", "Training steps that the job has done."};
inline constexpr Metric kJobTokens{"lynx_job_tokens_total", "Tokens that the job has trained on."};
inline constexpr Metric kJobLoss{"lynx_job_loss", "Loss of the newest step, in nats per token."};
inline constexpr Metric kJobValidationLoss{"lynx_job_validation_loss",
                                           "Loss of the newest evaluation on held-out data, in nats per token."};
inline constexpr Metric kJobGradientNorm{"lynx_job_gradient_norm", "Global gradient norm of the newest step."};
inline constexpr Metric kJobStepSeconds{"lynx_job_step_seconds", "Duration of steps on rank 0."};
inline constexpr Metric kJobPhaseSeconds{
    "lynx_job_phase_seconds_total",
    "Compute stream time by phase (label phase), summed over the ranks of the job: forward, backward, weight, "
    "recompute_hidden, recompute_exposed, tensor_wait, stall, data_parallel_wait, norm_wait, optimizer, checkpoint."};
inline constexpr Metric kJobMemoryPlanned{"lynx_job_memory_peak_planned_bytes",
                                          "Planned activation peak of a rank, by stage (label stage)."};
inline constexpr Metric kJobMemoryMeasured{"lynx_job_memory_peak_measured_bytes",
                                           "Largest measured activation peak of a rank, by stage (label stage)."};

// ---- lynx-agent ----
inline constexpr Metric kAgentAttached{"lynx_agent_attached", "Whether the agent holds a stream to its server: 1 or 0."};
inline constexpr Metric kMeasurements{
    "lynx_agent_measurements_total",
    "Measurements asked for (labels kind: shape, link; result: measured, cached, failed)."};
inline constexpr Metric kMeasurementSeconds{"lynx_agent_measurement_seconds_total",
                                            "Time spent on measuring (label kind: shape, link)."};

// Per GPU, under the names, units and labels (gpu, UUID, modelName, Hostname) of NVIDIA's DCGM exporter: the only names that
// do not begin with `lynx_`.
inline constexpr Metric kGpuUtilization{"DCGM_FI_DEV_GPU_UTIL", "Share of time in which a kernel ran (%)."};
inline constexpr Metric kGpuMemoryUtilization{"DCGM_FI_DEV_MEM_COPY_UTIL",
                                              "Share of time in which memory was read or written (%)."};
inline constexpr Metric kGpuMemoryUsed{"DCGM_FI_DEV_FB_USED", "Memory in use (MiB)."};
inline constexpr Metric kGpuMemoryFree{"DCGM_FI_DEV_FB_FREE", "Memory that is free (MiB)."};
inline constexpr Metric kGpuSmClock{"DCGM_FI_DEV_SM_CLOCK", "Clock of the multiprocessors (MHz)."};
inline constexpr Metric kGpuMemoryClock{"DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory (MHz)."};
inline constexpr Metric kGpuTemperature{"DCGM_FI_DEV_GPU_TEMP", "Temperature (C)."};
inline constexpr Metric kGpuPower{"DCGM_FI_DEV_POWER_USAGE", "Power drawn (W)."};
inline constexpr Metric kGpuXid{"DCGM_FI_DEV_XID_ERRORS", "The newest Xid since the agent started; 0: none."};
inline constexpr Metric kGpuEccErrors{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
                                      "Uncorrected memory errors since the driver was loaded."};
inline constexpr Metric kGpuThrottleReasons{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
                                            "What holds clocks down, as bits; 0: nothing."};

// ---- lynx-worker ----
inline constexpr Metric kWorkerAttached{"lynx_worker_attached",
                                        "Whether the worker daemon holds a stream to its server: 1 or 0."};
inline constexpr Metric kRanksRunning{"lynx_worker_ranks_running", "Rank processes that run on this node."};
inline constexpr Metric kRankExits{
    "lynx_worker_rank_exits_total",
    "Rank processes that ended (label outcome: done, failed, peer_lost, stopped, killed)."};

// Per rank on this node: labels job (id) and rank.
inline constexpr Metric kRankSteps{"lynx_rank_steps_total", "Training steps that the rank has done."};
inline constexpr Metric kRankTokens{"lynx_rank_tokens_total",
                                    "Tokens of the global batches that the rank has worked on; every rank of a job "
                                    "counts the same ones."};
inline constexpr Metric kRankLoss{"lynx_rank_loss", "Loss of the newest step, in nats per token."};
inline constexpr Metric kRankStepSeconds{"lynx_rank_step_seconds", "Duration of the rank's steps."};
inline constexpr Metric kRankPhaseSeconds{
    "lynx_rank_phase_seconds_total",
    "Compute stream time of the rank by phase (label phase): forward, backward, weight, recompute_hidden, "
    "recompute_exposed, tensor_wait, stall, data_parallel_wait, norm_wait, optimizer, checkpoint."};
inline constexpr Metric kRankBytesSent{"lynx_rank_bytes_sent_total", "Bytes that the rank has sent to its peers."};
inline constexpr Metric kRankArenaPeak{"lynx_rank_arena_peak_bytes",
                                       "Highest byte of the activation arena that the rank has used."};

}  // namespace lynx::metric

#endif  // LYNX_COMMON_METRIC_NAMES_H_

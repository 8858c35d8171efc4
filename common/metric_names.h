// All metrics of the Lynx daemons. Daemons register only these metrics (node/metric_families.h), and docs/metrics.md is
// generated from them. Units are base units (seconds, bytes). A share from 0 to 1 has a name that ends in `_ratio`; a counter
// has a name that ends in `_total`. All names except those of GPU metrics begin with `lynx_`. A label has only few values, or
// one value for each job, stage, rank, node or GPU. It never has one value for each step. This file has only constants. A new
// metric must also be added to the list in metric_table.cc.
#ifndef LYNX_COMMON_METRIC_NAMES_H_
#define LYNX_COMMON_METRIC_NAMES_H_

#include <cstdint>

namespace lynx::metric {

enum class Type : uint8_t { kCounter, kGauge, kHistogram };
enum class Daemon : uint8_t { kServer, kAgent, kWorker, kEvery };

struct Metric {
  const char* name;
  Type type;
  const char* unit;    // "s", "B"; "1" if there is no unit
  const char* labels;  // names, separated by ", "; empty if there are no labels
  Daemon daemon;
  const char* help;  // a sentence that names the labels' values
};

// ---- every daemon ----
inline constexpr Metric kBuildInfo{"lynx_build_info", Type::kGauge,   "1",
                                   "version",         Daemon::kEvery, "Always 1; the label says which version this is."};

// ---- lynx-server ----
inline constexpr Metric kJobs{
    "lynx_jobs", Type::kGauge,    "1",
    "state",     Daemon::kServer, "Jobs by state: queued, planning, starting, running, succeeded, failed, cancelled."};
inline constexpr Metric kAgentsAttached{
    "lynx_agents_attached", Type::kGauge, "1", "", Daemon::kServer, "Agents with a live stream to the server."};
inline constexpr Metric kWorkersAttached{
    "lynx_workers_attached", Type::kGauge, "1", "", Daemon::kServer, "Worker daemons with a live stream to the server."};
inline constexpr Metric kLeading{"lynx_server_leading",
                                 Type::kGauge,
                                 "1",
                                 "",
                                 Daemon::kServer,
                                 "1 if this server leads, 0 if it stands by. A server whose store is SQLite always leads."};
inline constexpr Metric kLeaseEpoch{
    "lynx_server_epoch",
    Type::kGauge,
    "1",
    "",
    Daemon::kServer,
    "Number of times that a server took the lease of the store, as this server knows it; 0 if the store is SQLite."};
inline constexpr Metric kPlanSeconds{
    "lynx_plan_duration_seconds",
    Type::kHistogram,
    "s",
    "trigger, result",
    Daemon::kServer,
    "Time to make one plan. Labels: trigger (first, speculation, loss, memory, growth, drift) and result (plan, infeasible, "
    "error). A speculative plan shows whether the job would end before the first job in line begins."};
inline constexpr Metric kStoreCommitSeconds{
    "lynx_store_commit_seconds", Type::kHistogram, "s", "", Daemon::kServer, "Time of one durable commit to the store."};
inline constexpr Metric kStoreCommitFailures{"lynx_store_commit_failures_total",       Type::kCounter, "1", "", Daemon::kServer,
                                             "Commits that the store could not write."};
inline constexpr Metric kEventQueue{
    "lynx_event_queue_length", Type::kGauge, "1", "", Daemon::kServer, "Events that wait for the server's one thread."};
inline constexpr Metric kOutboxLength{"lynx_outbox_length",
                                      Type::kGauge,
                                      "1",
                                      "",
                                      Daemon::kServer,
                                      "Messages that wait for the thread that sends them to nodes. A batch that the thread has "
                                      "taken counts until its last message is sent."};
inline constexpr Metric kJobsPending{"lynx_jobs_pending",
                                     Type::kGauge,
                                     "1",
                                     "reason",
                                     Daemon::kServer,
                                     "Waiting jobs by reason: held, dependency, structural (the cluster has too few devices), "
                                     "quota, ahead (other jobs come first), capacity (other jobs have the devices), near-miss "
                                     "(fewer ranks could begin now). A job with several reasons counts once for each."};
inline constexpr Metric kJobsSubmitted{"lynx_jobs_submitted_total", Type::kCounter, "1", "", Daemon::kServer,
                                       "Jobs that were submitted."};
inline constexpr Metric kJobsEnded{"lynx_jobs_ended_total",
                                   Type::kCounter,
                                   "1",
                                   "state",
                                   Daemon::kServer,
                                   "Jobs that ended, by state: succeeded, failed, cancelled."};
inline constexpr Metric kQueueWait{"lynx_queue_wait_seconds",
                                   Type::kHistogram,
                                   "s",
                                   "",
                                   Daemon::kServer,
                                   "Time that a job waited in the queue. A job that waits again counts again."};
inline constexpr Metric kFirstStep{
    "lynx_time_to_first_step_seconds",
    Type::kHistogram,
    "s",
    "",
    Daemon::kServer,
    "Time from a job's first devices to the end of its first step. It includes measuring, planning and starting."};
inline constexpr Metric kNodes{"lynx_nodes",
                               Type::kGauge,
                               "1",
                               "state",
                               Daemon::kServer,
                               "Nodes by state: attached (agent and worker daemon), partial (one of the two), absent "
                               "(neither), lost (the server has given the node and its ranks up)."};
inline constexpr Metric kNodesCordoned{"lynx_nodes_cordoned",
                                       Type::kGauge,
                                       "1",
                                       "",
                                       Daemon::kServer,
                                       "Cordoned nodes: somebody has asked that they take no new ranks."};
inline constexpr Metric kDevices{"lynx_devices",
                                 Type::kGauge,
                                 "1",
                                 "kind",
                                 Daemon::kServer,
                                 "Devices of nodes that have a worker daemon, by kind: cpu, cuda. Devices of cordoned nodes "
                                 "are included; withdrawn GPUs are not."};
inline constexpr Metric kDevicesUsed{"lynx_devices_used",
                                     Type::kGauge,
                                     "1",
                                     "kind",
                                     Daemon::kServer,
                                     "Devices that jobs have or are planned for, by kind: cpu, cuda."};
inline constexpr Metric kLeasesRenewed{"lynx_leases_renewed_total",
                                       Type::kCounter,
                                       "1",
                                       "",
                                       Daemon::kServer,
                                       "Renewed leases of nodes. Each report of a worker daemon renews one."};
inline constexpr Metric kFencedReports{
    "lynx_fenced_reports_total",
    Type::kCounter,
    "1",
    "",
    Daemon::kServer,
    "Refused reports of ranks: their generation is over, or the server does not know their job."};
inline constexpr Metric kCallsRefused{"lynx_calls_refused_total",
                                      Type::kCounter,
                                      "1",
                                      "",
                                      Daemon::kServer,
                                      "Refused calls: the caller was unknown or not allowed."};
inline constexpr Metric kCalls{"lynx_calls_total",
                               Type::kCounter,
                               "1",
                               "method, code",
                               Daemon::kServer,
                               "Calls with a single answer, by method (such as Jobs.SubmitJob) and gRPC status code (OK, "
                               "NOT_FOUND). Refused calls are included, streams are not."};
inline constexpr Metric kCallSeconds{"lynx_call_duration_seconds",
                                     Type::kHistogram,
                                     "s",
                                     "method",
                                     Daemon::kServer,
                                     "Time from the arrival of such a call until its answer was handed to gRPC."};
inline constexpr Metric kDeviceSeconds{
    "lynx_device_seconds_total",
    Type::kCounter,
    "s",
    "use",
    Daemon::kServer,
    "Device seconds of jobs (time multiplied by devices), by use: training (new steps), planning, starting, redoing (lost "
    "steps), detecting (from the last step until a loss was noticed), stopping."};
inline constexpr Metric kDeviceSecondsLost{"lynx_device_seconds_lost_total",
                                           Type::kCounter,
                                           "s",
                                           "cause",
                                           Daemon::kServer,
                                           "Device seconds of jobs that were not training, by cause: start (of the job), rank, "
                                           "node (lost), replan, preempted, held, drain, time_limit."};
inline constexpr Metric kRecovery{"lynx_recovery_seconds",
                                  Type::kHistogram,
                                  "s",
                                  "phase",
                                  Daemon::kServer,
                                  "Time from the loss of a rank or node until the job had made up for it, by phase: detect, "
                                  "stop, wait (for devices and a plan), start, redo (lost steps), and total."};

// Metrics of each job, with labels job_id and job_name. There is no label `job`, because Prometheus uses that name for the
// scraped target.
inline constexpr Metric kJobInfo{
    "lynx_job_info",
    Type::kGauge,
    "1",
    "job_id, job_name, queue, layout, device",
    Daemon::kServer,
    "Always 1. The labels give the queue, the parallel layout and the kind of device (cpu, cuda) of a job that has a plan."};
inline constexpr Metric kJobRanks{"lynx_job_ranks",   Type::kGauge,    "1",
                                  "job_id, job_name", Daemon::kServer, "Devices that the job has or is planned for."};
inline constexpr Metric kJobTargetSteps{"lynx_job_target_steps", Type::kGauge,    "1",
                                        "job_id, job_name",      Daemon::kServer, "Steps that the job has to do."};
inline constexpr Metric kJobDoneSteps{
    "lynx_job_done_steps", Type::kGauge,    "1",
    "job_id, job_name",    Daemon::kServer, "Steps done, as the newest report says. It falls when steps are lost."};
inline constexpr Metric kJobRestarts{"lynx_job_restarts_total", Type::kCounter,  "1",
                                     "job_id, job_name",        Daemon::kServer, "Automatic restarts of the job."};
inline constexpr Metric kJobReplans{
    "lynx_job_replans_total",
    Type::kCounter,
    "1",
    "job_id, job_name, decision",
    Daemon::kServer,
    "New plans for a job that had a plan, by decision: kept (the job keeps its plan), adopted (a better plan, often for more "
    "devices), forced (its devices have changed, or it ran out of memory)."};
inline constexpr Metric kJobResumesFromCopies{"lynx_job_resumes_from_copies_total",
                                              Type::kCounter,
                                              "1",
                                              "job_id, job_name",
                                              Daemon::kServer,
                                              "Times that the job resumed from in-memory checkpoints."};
inline constexpr Metric kJobSteps{
    "lynx_job_steps_total", Type::kCounter,  "1",
    "job_id, job_name",     Daemon::kServer, "Training steps that the job has done. A step that is done again counts once."};
inline constexpr Metric kJobTokens{"lynx_job_tokens_total",
                                   Type::kCounter,
                                   "1",
                                   "job_id, job_name",
                                   Daemon::kServer,
                                   "Tokens that the job has trained on. Tokens of a step that is done again count once."};
inline constexpr Metric kJobLoss{"lynx_job_loss",    Type::kGauge,    "nats",
                                 "job_id, job_name", Daemon::kServer, "Loss of the newest step, in nats per token."};
inline constexpr Metric kJobValidationLoss{
    "lynx_job_validation_loss", Type::kGauge,    "nats",
    "job_id, job_name",         Daemon::kServer, "Loss of the newest evaluation on held-out data, in nats per token."};
inline constexpr Metric kJobGradientNorm{"lynx_job_gradient_norm", Type::kGauge,    "1",
                                         "job_id, job_name",       Daemon::kServer, "Global gradient norm of the newest step."};
inline constexpr Metric kJobStepSeconds{"lynx_job_step_seconds", Type::kHistogram, "s",
                                        "job_id, job_name",      Daemon::kServer,  "Duration of steps on rank 0."};
inline constexpr Metric kJobPhaseSeconds{
    "lynx_job_phase_seconds_total",
    Type::kCounter,
    "s",
    "job_id, job_name, stage, phase",
    Daemon::kServer,
    "Compute stream time by stage and phase, summed over the ranks of the stage: forward, backward, weight, recompute_hidden, "
    "recompute_exposed, tensor_wait, stall, data_parallel_wait, norm_wait, optimizer, data_wait, checkpoint."};
inline constexpr Metric kJobModelFlops{"lynx_job_model_flops_total",
                                       Type::kCounter,
                                       "1",
                                       "job_id, job_name",
                                       Daemon::kServer,
                                       "FLOPs that the model needs for the tokens it was trained on, without recomputation."};
inline constexpr Metric kJobStepsSkipped{"lynx_job_steps_skipped_total",
                                         Type::kCounter,
                                         "1",
                                         "job_id, job_name",
                                         Daemon::kServer,
                                         "Steps that changed no weight, because the loss or the gradient norm was not finite."};
inline constexpr Metric kJobLearningRate{"lynx_job_learning_rate", Type::kGauge,    "1",
                                         "job_id, job_name",       Daemon::kServer, "Learning rate of the newest step."};
inline constexpr Metric kJobStageStepSeconds{
    "lynx_job_stage_step_seconds", Type::kGauge,    "s",
    "job_id, job_name, stage",     Daemon::kServer, "Duration of the newest step that a rank of the stage has reported."};
inline constexpr Metric kJobPredictedStep{
    "lynx_job_predicted_step_seconds",        Type::kGauge, "s", "job_id, job_name", Daemon::kServer,
    "Time of a step as the plan predicts it."};
inline constexpr Metric kJobStepError{"lynx_job_step_prediction_error_ratio",
                                      Type::kGauge,
                                      "1",
                                      "job_id, job_name",
                                      Daemon::kServer,
                                      "Median of the newest 20 steps divided by the predicted step, minus 1. 0.1 means that "
                                      "steps take 10% longer than predicted."};
inline constexpr Metric kJobPredictedPhase{
    "lynx_job_predicted_phase_seconds",
    Type::kGauge,
    "s",
    "job_id, job_name, stage, phase",
    Daemon::kServer,
    "Time of a rank in one step as the plan predicts it, by stage and phase: forward, backward, weight, recompute_hidden, "
    "recompute_exposed, communication_exposed, stall, optimizer."};
inline constexpr Metric kJobHiddenRatio{"lynx_job_recompute_hidden_ratio",
                                        Type::kGauge,
                                        "1",
                                        "job_id, job_name",
                                        Daemon::kServer,
                                        "Share of the recomputation in the newest complete step that ran while the device "
                                        "would have waited. Only for jobs that recompute."};
inline constexpr Metric kJobBubbleRatio{
    "lynx_job_bubble_ratio",
    Type::kGauge,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Share of the newest complete step in which ranks waited for other stages, over all ranks."};
inline constexpr Metric kJobCommunicationRatio{
    "lynx_job_communication_exposed_ratio",
    Type::kGauge,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Share of the newest complete step in which ranks waited for collectives, over all ranks."};
inline constexpr Metric kJobCoreWaitRatio{
    "lynx_job_core_wait_ratio",
    Type::kGauge,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Share of the newest complete step in which compute threads were ready to run while other threads had their cores, over "
    "all ranks. The prediction includes only ranks of the same job that share cores."};
inline constexpr Metric kJobExpertSkew{"lynx_job_expert_load_skew",
                                       Type::kGauge,
                                       "1",
                                       "job_id, job_name",
                                       Daemon::kServer,
                                       "Rows that the experts of the fullest rank received in the newest step, as a multiple "
                                       "of the even share. Only for models with "
                                       "experts, like the seven below."};
inline constexpr Metric kJobExpertSkewPlanned{"lynx_job_expert_load_skew_planned",
                                              Type::kGauge,
                                              "1",
                                              "job_id, job_name",
                                              Daemon::kServer,
                                              "The value of lynx_job_expert_load_skew that the plan assumes."};
inline constexpr Metric kJobExpertPeak{"lynx_job_expert_load_peak",
                                       Type::kGauge,
                                       "1",
                                       "job_id, job_name",
                                       Daemon::kServer,
                                       "Rows that a rank received in the fullest layer and microbatch of the newest complete "
                                       "step, as a multiple of the even share."};
inline constexpr Metric kJobExpertFullest{"lynx_job_expert_load_fullest",
                                          Type::kGauge,
                                          "1",
                                          "job_id, job_name",
                                          Daemon::kServer,
                                          "Rows that the fullest expert of a rank received in the newest complete step, as a "
                                          "multiple of the even share of an expert."};
inline constexpr Metric kJobExpertRows{
    "lynx_job_expert_rows_routed_total",
    Type::kCounter,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Rows that tokens were in forward passes: one in each layer for each of the token's experts. Each step counts once."};
inline constexpr Metric kJobExpertRowsDropped{
    "lynx_job_expert_rows_dropped_total",
    Type::kCounter,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Those of the rows routed for which the expert had no room (model.moe.capacity)."};
inline constexpr Metric kJobExpertRowsInRounds{
    "lynx_job_expert_rows_in_rounds_total",
    Type::kCounter,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Those of the rows routed that went through rounds, because the expert had no room (model.moe.dropless)."};
inline constexpr Metric kJobExpertRounds{
    "lynx_job_expert_rounds_total",
    Type::kCounter,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Rounds in forward passes: one in a layer and microbatch counts once for its expert group. Each step counts once."};
inline constexpr Metric kJobMfu{"lynx_job_mfu_ratio",
                                Type::kGauge,
                                "1",
                                "job_id, job_name",
                                Daemon::kServer,
                                "Model FLOPs per second in the newest step, divided by what the devices can do: the rate of "
                                "large matrix products that agents measured or that is stated."};
inline constexpr Metric kJobMemoryPlanned{
    "lynx_job_memory_peak_planned_bytes",
    Type::kGauge,
    "B",
    "job_id, job_name, stage, kind",
    Daemon::kServer,
    "Planned memory of a rank, by stage and kind: activations (the peak), weights, gradients, optimizer, offloaded (host "
    "memory)."};
inline constexpr Metric kJobMemoryMeasured{
    "lynx_job_memory_peak_measured_bytes",
    Type::kGauge,
    "B",
    "job_id, job_name, stage, kind",
    Daemon::kServer,
    "Largest measured memory of a rank, by stage and kind: activations, states (weights, gradients and optimizer)."};
inline constexpr Metric kJobMemoryError{
    "lynx_job_memory_prediction_error_ratio",
    Type::kGauge,
    "1",
    "job_id, job_name, stage",
    Daemon::kServer,
    "Largest measured activation peak of a rank divided by the planned peak, minus 1. It is 0, or negative where the plan was "
    "not fully used. It is never positive: a rank that needs more than its plan fails."};
inline constexpr Metric kJobCheckpoints{"lynx_job_checkpoints_total", Type::kCounter,  "1",
                                        "job_id, job_name",           Daemon::kServer, "Written checkpoints."};
inline constexpr Metric kJobCheckpointFailures{
    "lynx_job_checkpoint_failures_total",    Type::kCounter, "1", "job_id, job_name", Daemon::kServer,
    "Checkpoints that could not be written."};
inline constexpr Metric kJobCheckpointBytes{"lynx_job_checkpoint_bytes", Type::kGauge,    "B",
                                            "job_id, job_name",          Daemon::kServer, "Size of the newest checkpoint."};
inline constexpr Metric kJobCheckpointSteps{
    "lynx_job_checkpoint_steps", Type::kGauge,    "1",
    "job_id, job_name",          Daemon::kServer, "Number of steps that the newest checkpoint contains."};
inline constexpr Metric kJobCheckpointTime{"lynx_job_checkpoint_timestamp_seconds",
                                           Type::kGauge,
                                           "s",
                                           "job_id, job_name",
                                           Daemon::kServer,
                                           "When the server heard of the newest checkpoint, in seconds since the Unix epoch."};
inline constexpr Metric kJobCopiedSteps{
    "lynx_job_copied_steps",
    Type::kGauge,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Number of steps that the newest complete in-memory checkpoint contains; 0: there is none."};
inline constexpr Metric kJobCopiesSkipped{
    "lynx_job_copies_skipped_total",
    Type::kCounter,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "In-memory checkpoints that were not made, because the one before was not finished or had failed."};
inline constexpr Metric kJobDeviceSeconds{
    "lynx_job_device_seconds_total", Type::kCounter,  "s",
    "job_id, job_name, use",         Daemon::kServer, "Device seconds of the job, by use as in lynx_device_seconds_total."};
inline constexpr Metric kJobGoodput{
    "lynx_job_goodput_ratio",
    Type::kGauge,
    "1",
    "job_id, job_name",
    Daemon::kServer,
    "Share of the job's device seconds that were spent on new training steps, since this server has followed the job."};

// ---- lynx-agent ----
inline constexpr Metric kAgentAttached{
    "lynx_agent_attached", Type::kGauge, "1", "", Daemon::kAgent, "1 if the agent has a stream to its server, otherwise 0."};
inline constexpr Metric kMeasurements{"lynx_agent_measurements_total",
                                      Type::kCounter,
                                      "1",
                                      "kind, result",
                                      Daemon::kAgent,
                                      "Requested measurements, by kind (shape, link) and result (measured, cached, failed)."};
inline constexpr Metric kMeasurementSeconds{
    "lynx_agent_measurement_seconds_total",          Type::kCounter, "s", "kind", Daemon::kAgent,
    "Time spent on measuring, by kind: shape, link."};

// Metrics of each GPU, with the names, units and labels of NVIDIA's DCGM exporter. Only these names do not begin with `lynx_`.
inline constexpr const char* kGpuLabels = "gpu, UUID, modelName, Hostname";
inline constexpr Metric kGpuUtilization{
    "DCGM_FI_DEV_GPU_UTIL", Type::kGauge, "%", kGpuLabels, Daemon::kAgent, "Share of time in which a kernel ran."};
inline constexpr Metric kGpuMemoryUtilization{"DCGM_FI_DEV_MEM_COPY_UTIL",
                                              Type::kGauge,
                                              "%",
                                              kGpuLabels,
                                              Daemon::kAgent,
                                              "Share of time in which memory was read or written."};
inline constexpr Metric kGpuMemoryUsed{"DCGM_FI_DEV_FB_USED", Type::kGauge,    "MiB", kGpuLabels,
                                       Daemon::kAgent,        "Memory in use."};
inline constexpr Metric kGpuMemoryFree{"DCGM_FI_DEV_FB_FREE", Type::kGauge,          "MiB", kGpuLabels,
                                       Daemon::kAgent,        "Memory that is free."};
inline constexpr Metric kGpuSmClock{"DCGM_FI_DEV_SM_CLOCK",         Type::kGauge, "MHz", kGpuLabels, Daemon::kAgent,
                                    "Clock of the multiprocessors."};
inline constexpr Metric kGpuMemoryClock{"DCGM_FI_DEV_MEM_CLOCK", Type::kGauge,          "MHz", kGpuLabels,
                                        Daemon::kAgent,          "Clock of the memory."};
inline constexpr Metric kGpuTemperature{"DCGM_FI_DEV_GPU_TEMP", Type::kGauge, "C", kGpuLabels, Daemon::kAgent, "Temperature."};
inline constexpr Metric kGpuPower{"DCGM_FI_DEV_POWER_USAGE", Type::kGauge, "W", kGpuLabels, Daemon::kAgent, "Power drawn."};
inline constexpr Metric kGpuXid{"DCGM_FI_DEV_XID_ERRORS",
                                Type::kGauge,
                                "1",
                                kGpuLabels,
                                Daemon::kAgent,
                                "Newest Xid since the agent started; 0: there was none."};
inline constexpr Metric kGpuEccErrors{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
                                      Type::kGauge,
                                      "1",
                                      kGpuLabels,
                                      Daemon::kAgent,
                                      "Uncorrected memory errors since the driver was loaded."};
inline constexpr Metric kGpuThrottleReasons{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
                                            Type::kGauge,
                                            "bits",
                                            kGpuLabels,
                                            Daemon::kAgent,
                                            "Reasons why clocks are held down, as bits; 0: there is no reason."};

// ---- lynx-worker ----
inline constexpr Metric kWorkerAttached{"lynx_worker_attached",
                                        Type::kGauge,
                                        "1",
                                        "",
                                        Daemon::kWorker,
                                        "1 if the worker daemon has a stream to its server, otherwise 0."};
inline constexpr Metric kRanksRunning{
    "lynx_worker_ranks_running", Type::kGauge, "1", "", Daemon::kWorker, "Rank processes that run on this node."};
inline constexpr Metric kRankExits{"lynx_worker_rank_exits_total",
                                   Type::kCounter,
                                   "1",
                                   "outcome",
                                   Daemon::kWorker,
                                   "Rank processes that ended, by outcome: done, failed, peer_lost, stopped, killed."};
inline constexpr Metric kWorkerSteps{
    "lynx_worker_steps_total", Type::kCounter, "1", "", Daemon::kWorker, "Training steps of all ranks on this node, added up."};
inline constexpr Metric kWorkerBytesSent{"lynx_worker_bytes_sent_total",
                                         Type::kCounter,
                                         "B",
                                         "",
                                         Daemon::kWorker,
                                         "Bytes that the ranks of this node have sent to their peers."};
inline constexpr Metric kWorkerCoreWait{"lynx_worker_core_wait_seconds_total",
                                        Type::kCounter,
                                        "s",
                                        "",
                                        Daemon::kWorker,
                                        "Time in which compute threads of this node's ranks were ready to run while other "
                                        "threads had their cores, added up over the ranks."};

// Metrics of each rank on this node, with labels job_id and rank. They exist only with `lynx-worker --rank-metrics`.
inline constexpr Metric kRankSteps{"lynx_rank_steps_total", Type::kCounter,  "1",
                                   "job_id, rank",          Daemon::kWorker, "Training steps that the rank has done."};
inline constexpr Metric kRankTokens{
    "lynx_rank_tokens_total",
    Type::kCounter,
    "1",
    "job_id, rank",
    Daemon::kWorker,
    "Tokens of the global batches that the rank has worked on. All ranks of a job count the same tokens."};
inline constexpr Metric kRankLoss{"lynx_rank_loss", Type::kGauge,    "nats",
                                  "job_id, rank",   Daemon::kWorker, "Loss of the newest step, in nats per token."};
inline constexpr Metric kRankStepSeconds{"lynx_rank_step_seconds", Type::kHistogram, "s",
                                         "job_id, rank",           Daemon::kWorker,  "Duration of the rank's steps."};
inline constexpr Metric kRankPhaseSeconds{"lynx_rank_phase_seconds_total",
                                          Type::kCounter,
                                          "s",
                                          "job_id, rank, phase",
                                          Daemon::kWorker,
                                          "Compute stream time of the rank by phase: forward, backward, weight, "
                                          "recompute_hidden, recompute_exposed, tensor_wait, stall, "
                                          "data_parallel_wait, norm_wait, optimizer, data_wait, checkpoint."};
inline constexpr Metric kRankBytesSent{"lynx_rank_bytes_sent_total",
                                       Type::kCounter,
                                       "B",
                                       "job_id, rank",
                                       Daemon::kWorker,
                                       "Bytes that the rank has sent to its peers."};
inline constexpr Metric kRankArenaPeak{"lynx_rank_arena_peak_bytes",
                                       Type::kGauge,
                                       "B",
                                       "job_id, rank",
                                       Daemon::kWorker,
                                       "Highest byte of the activation arena that the rank has used."};
inline constexpr Metric kRankResident{
    "lynx_rank_resident_bytes",
    Type::kGauge,
    "B",
    "job_id, rank",
    Daemon::kWorker,
    "Memory of the rank's process in RAM after its newest step, without in-memory checkpoints in shared files."};

}  // namespace lynx::metric

#endif  // LYNX_COMMON_METRIC_NAMES_H_

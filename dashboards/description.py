"""The description of Lynx's Grafana dashboards. generate.py writes the JSON files from it. A panel is
(kind, title, unit, [(query, legend), ...], {options}). A dashboard has rows. A row has a title and a list of panels, in which
panels of the same kind stand together. Only a panel with a single query may leave out the legend.

Queries can use $server (the instance of lynx-server), Grafana's $__rate_interval, and $job_id and $job_name if the
dashboard has these variables. docs/metrics.md lists the metrics. Names with colons are recording rules
(prometheus/lynx_rules.yml).
"""

SERVER = 'instance=~"$server"'
JOB = f'{SERVER},job_name=~"$job_name",job_id=~"$job_id"'
TRAINS = f'{SERVER},use="training"'


def rate(metric, labels=SERVER, window="$__rate_interval"):
    return f"rate({metric}{{{labels}}}[{window}])"


def quantile(q, metric, by="", labels=SERVER, window="$__rate_interval"):
    """A quantile of a histogram. `>= 0` drops NaN, so there is no empty line in a graph if nothing was observed."""
    group = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({group}) ({rate(metric + '_bucket', labels, window)})) >= 0"


def quantiles(metric, by="", labels=SERVER, window="$__rate_interval"):
    return [(quantile(q, metric, by, labels, window), f"{name} {{{{{by}}}}}" if by else name) for q, name in ((0.5, "median"), (0.99, "99%"))]


def mean(metric, by="", labels=SERVER, window="$__rate_interval"):
    """The mean of a histogram. It is exact; quantiles are only estimates from buckets. No value if nothing was observed."""
    group = f" by ({by}) " if by else ""
    return f"sum{group}({rate(metric + '_sum', labels, window)}) / (sum{group}({rate(metric + '_count', labels, window)}) > 0)"


def with_devices(query):
    """Keeps only the jobs that hold devices: the metrics of a job remain for a while after the job has ended."""
    return f"{query} and on (instance, job_id) lynx_job_ranks{{{SERVER}}} > 0"


# Seconds since the time {}, at which a checkpoint was written. Never below 0: the clock of the machine that wrote the
# checkpoint may differ from the clock of Prometheus.
CHECKPOINT_AGE = "clamp_min(time() - {}, 0)"

# RANKS_OF_A_STAGE: number of ranks of one stage; all stages have the same number. PHASES_OF_A_RANK: seconds of each phase for
# one rank and one step. The metric adds up all ranks of a stage, so it is divided by the number of ranks and of steps.
# Repeated steps count, too.
RANKS_OF_A_STAGE = (f"(lynx_job_ranks{{{JOB}}} > 0) / on (instance, job_id) "
                    f'count by (instance, job_id) (lynx_job_predicted_phase_seconds{{{JOB},phase="forward"}})')
PHASES_OF_A_RANK = (f"sum by (instance, job_id, stage, phase) ({rate('lynx_job_phase_seconds_total', JOB)}) / on (instance, job_id) group_left () "
                    f"({RANKS_OF_A_STAGE} * on (instance, job_id) ({rate('lynx_job_step_seconds_count', JOB)} > 0))")

CLUSTER = dict(
    uid="lynx-cluster", title="Lynx / Cluster", about="What runs, what waits, and what the devices do.", variables=["server"],
    rows=[
        ("Now", [
            ("stat", "Running jobs", "short", [(f'sum(lynx_jobs{{{SERVER},state="running"}})', "")], {}),
            ("stat", "Waiting jobs", "short", [(f'sum(lynx_jobs{{{SERVER},state="queued"}})', "")], {}),
            ("stat", "Nodes", "short", [(f'sum(lynx_nodes{{{SERVER},state="attached"}})', "")], {}),
            ("stat", "Lost nodes", "short", [(f'sum(lynx_nodes{{{SERVER},state="lost"}})', "")], {"red_above": 1}),
            ("stat", "Devices in use", "percentunit", [(f"lynx:devices_used:ratio{{{SERVER}}}", "{{kind}}")], {}),
            ("stat", "Goodput", "percentunit", [(f"lynx:goodput:ratio_rate5m{{{SERVER}}}", "")], {}),
        ]),
        ("Jobs", [
            ("graph", "Jobs by state", "short", [(f"sum by (state) (lynx_jobs{{{SERVER}}})", "{{state}}")], {"stack": True}),
            ("graph", "Why jobs wait", "short", [(f"sum by (reason) (lynx_jobs_pending{{{SERVER}}})", "{{reason}}")], {}),
            ("graph", "Time in the queue, of an hour's jobs", "s", quantiles("lynx_queue_wait_seconds", window="1h"), {}),
            ("graph", "From devices to the first step, of an hour's jobs", "s", quantiles("lynx_time_to_first_step_seconds", window="1h"), {}),
            ("graph", "Jobs that ended", "short", [(f"sum by (state) (increase(lynx_jobs_ended_total{{{SERVER}}}[$__rate_interval]))", "{{state}}")], {}),
            ("table", "Running jobs", "short",
             [(f"sum by (job_id, job_name, queue, layout, device) ({with_devices(f'lynx_job_info{{{SERVER}}}')})", "")], {"link": "lynx-job"}),
        ]),
        ("Work", [
            ("graph", "Tokens per second", "short", [(f"lynx:job_tokens:rate5m{{{SERVER}}}", "{{job_name}}")], {"stack": True}),
            ("graph", "Model FLOPs per second", "flops", [(f"lynx:job_model_flops:rate5m{{{SERVER}}}", "{{job_name}}")], {"stack": True}),
            ("graph", "Devices", "short", [(f"sum by (kind) (lynx_devices{{{SERVER}}})", "{{kind}}"),
                                           (f"sum by (kind) (lynx_devices_used{{{SERVER}}})", "{{kind}} in use")], {}),
        ]),
        ("Nodes", [
            ("graph", "Nodes by state", "short", [(f"sum by (state) (lynx_nodes{{{SERVER}}})", "{{state}}"),
                                                  (f"sum(lynx_nodes_cordoned{{{SERVER}}})", "cordoned")], {}),
            ("graph", "Ranks per node", "short", [("lynx_worker_ranks_running", "{{instance}}")], {}),
            ("graph", "Ranks that wait for a core, per node", "short", [("rate(lynx_worker_core_wait_seconds_total[$__rate_interval])", "{{instance}}")], {}),
            ("graph", "Bytes sent per node", "Bps", [("rate(lynx_worker_bytes_sent_total[$__rate_interval])", "{{instance}}")], {}),
            ("graph", "Daemons without a server", "short", [("lynx_worker_attached == bool 0", "{{instance}} worker"),
                                                            ("lynx_agent_attached == bool 0", "{{instance}} agent")], {}),
        ]),
        ("GPUs", [
            ("graph", "GPU utilization", "percent", [("DCGM_FI_DEV_GPU_UTIL", "{{Hostname}} {{gpu}}")], {"none": "No node reports a GPU"}),
            ("graph", "GPU memory in use", "mbytes", [("DCGM_FI_DEV_FB_USED", "{{Hostname}} {{gpu}}")], {"none": "No node reports a GPU"}),
            ("graph", "GPU temperature", "celsius", [("DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} {{gpu}}")], {"none": "No node reports a GPU"}),
            ("graph", "GPU power", "watt", [("DCGM_FI_DEV_POWER_USAGE", "{{Hostname}} {{gpu}}")], {"none": "No node reports a GPU"}),
        ]),
    ])

TRAINING = [
    ("Now", [
        ("stat", "Steps done", "short", [(f"max(lynx_job_done_steps{{{JOB}}})", "")], {}),
        ("stat", "Of", "short", [(f"max(lynx_job_target_steps{{{JOB}}})", "")], {}),
        ("stat", "Ranks", "short", [(f"max(lynx_job_ranks{{{JOB}}})", "")], {}),
        ("stat", "Tokens per second", "short", [(f"sum({rate('lynx_job_tokens_total', JOB)})", "")], {}),
        ("stat", "MFU", "percentunit", [(f"max(lynx_job_mfu_ratio{{{JOB}}})", "")], {}),
        ("stat", "Recomputation hidden", "percentunit", [(f"max(lynx_job_recompute_hidden_ratio{{{JOB}}})", "")], {}),
        ("stat", "Age of the checkpoint", "s", [(CHECKPOINT_AGE.format(f"max(lynx_job_checkpoint_timestamp_seconds{{{JOB}}})"), "")], {}),
        ("stat", "Size of the checkpoint", "bytes", [(f"max(lynx_job_checkpoint_bytes{{{JOB}}})", "")], {}),
    ]),
    ("Training", [
        ("graph", "Loss", "short", [(f"lynx_job_loss{{{JOB}}}", "training"), (f"lynx_job_validation_loss{{{JOB}}}", "held-out data")],
         {"free": True}),
        ("graph", "Gradient norm", "short", [(f"lynx_job_gradient_norm{{{JOB}}}", "{{job_name}} {{job_id}}")], {}),
        ("graph", "Learning rate", "sci", [(f"lynx_job_learning_rate{{{JOB}}}", "{{job_name}} {{job_id}}")], {"free": True}),
        ("graph", "Updates left out", "short", [(f"sum(increase(lynx_job_steps_skipped_total{{{JOB}}}[$__rate_interval]))", "")], {}),
    ]),
    ("Speed", [
        ("graph", "Step", "s", [(mean("lynx_job_step_seconds", labels=JOB), "mean"), (quantile(0.99, "lynx_job_step_seconds", labels=JOB), "99%"),
                                (f"lynx_job_predicted_step_seconds{{{JOB}}}", "predicted")], {}),
        ("graph", "Step by stage", "s", [(f"lynx_job_stage_step_seconds{{{JOB}}}", "stage {{stage}}")], {}),
        ("graph", "Where the time of all ranks goes", "percentunit",
         [(f"sum by (phase) ({rate('lynx_job_phase_seconds_total', JOB)}) / on () group_left () "
           f"sum({rate('lynx_job_phase_seconds_total', JOB)})", "{{phase}}")], {"stack": True, "many": True}),
        ("graph", "Shares, of five minutes", "percentunit",
         [(f"lynx:job_recompute_hidden:ratio_rate5m{{{JOB}}}", "of recomputation: hidden"),
          (f"lynx:job_bubble:ratio_rate5m{{{JOB}}}", "of the step: pipeline stalls"),
          (f"lynx:job_communication_exposed:ratio_rate5m{{{JOB}}}", "of the step: exposed communication")], {}),
        ("graph", "Model FLOPs per second", "flops", [(f"sum({rate('lynx_job_model_flops_total', JOB)})", "")], {}),
    ]),
    ("Memory of a rank", [
        ("graph", "Planned", "bytes", [(f"lynx_job_memory_peak_planned_bytes{{{JOB}}}", "stage {{stage}} {{kind}}")], {"many": True}),
        ("graph", "Measured peak", "bytes", [(f"lynx_job_memory_peak_measured_bytes{{{JOB}}}", "stage {{stage}} {{kind}}")], {"many": True}),
    ]),
    ("Checkpoints", [
        ("graph", "Steps done, and of what is kept", "short", [(f"lynx_job_done_steps{{{JOB}}}", "done"),
                                                               (f"lynx_job_checkpoint_steps{{{JOB}}}", "in a checkpoint"),
                                                               (f"lynx_job_copied_steps{{{JOB}}}", "in copies in memory")], {}),
        ("graph", "Age of the newest checkpoint", "s", [(CHECKPOINT_AGE.format(f"lynx_job_checkpoint_timestamp_seconds{{{JOB}}}"), "{{job_name}} {{job_id}}")],
         {}),
    ]),
    ("Experts", [
        ("graph", "Rows as a multiple of the even share", "short", [(f"lynx_job_expert_load_skew{{{JOB}}}", "of the fullest rank"),
                                                                    (f"lynx_job_expert_load_skew_planned{{{JOB}}}", "of the fullest rank, planned"),
                                                                    (f"lynx_job_expert_load_peak{{{JOB}}}", "of a rank in its fullest layer"),
                                                                    (f"lynx_job_expert_load_fullest{{{JOB}}}", "of the fullest expert")],
         {"none": "The model has no experts"}),
        ("graph", "Share of the rows of experts that are dropped", "percentunit",
         [(f"sum({rate('lynx_job_expert_rows_dropped_total', JOB)}) / sum({rate('lynx_job_expert_rows_routed_total', JOB)})", "")],
         {"none": "The model has no experts"}),
        ("graph", "Share of the rows of experts that go through rounds", "percentunit",
         [(f"sum({rate('lynx_job_expert_rows_in_rounds_total', JOB)}) / sum({rate('lynx_job_expert_rows_routed_total', JOB)})", "")],
         {"none": "The model has no experts"}),
        ("graph", "Rounds of experts per second", "short", [(f"sum({rate('lynx_job_expert_rounds_total', JOB)})", "")],
         {"none": "The model has no experts"}),
    ]),
]
JOB_BOARD = dict(uid="lynx-job", title="Lynx / Job", about="One training job: loss, speed, memory, checkpoints.",
                 variables=["server", "job_name", "job_id"], rows=TRAINING)

PLANNER = dict(
    uid="lynx-planner", title="Lynx / Planner accuracy", about="What was planned beside what was measured, and how long planning takes.",
    variables=["server", "job_name", "job_id"],
    rows=[
        ("Time", [
            ("graph", "Error of the predicted step", "percentunit", [(f"lynx_job_step_prediction_error_ratio{{{JOB}}}", "{{job_name}}")],
             {"signed": True}),
            ("graph", "Share of the step that ranks wait for a core", "percentunit", [(f"lynx_job_core_wait_ratio{{{JOB}}}", "{{job_name}}")], {}),
            ("graph", "Step", "s", [(f"lynx_job_predicted_step_seconds{{{JOB}}}", "{{job_name}} predicted"),
                                    (mean("lynx_job_step_seconds", "job_name", JOB), "{{job_name}} measured")], {}),
            ("graph", "Predicted of a rank, by stage and phase", "s", [(f"lynx_job_predicted_phase_seconds{{{JOB}}}", "stage {{stage}} {{phase}}")],
             {"stack": True, "many": True}),
            ("graph", "Measured of a rank, by stage and phase", "s", [(PHASES_OF_A_RANK, "stage {{stage}} {{phase}}")],
             {"stack": True, "many": True}),
        ]),
        ("Memory", [
            ("graph", "Share of the planned activation peak that was not needed", "percentunit",
             [(f"0 - lynx_job_memory_prediction_error_ratio{{{JOB}}}", "stage {{stage}}")], {}),
            ("graph", "Activation peak", "bytes",
             [(f'max by (stage) (lynx_job_memory_peak_planned_bytes{{{JOB},kind="activations"}})', "stage {{stage}} planned"),
              (f'max by (stage) (lynx_job_memory_peak_measured_bytes{{{JOB},kind="activations"}})', "stage {{stage}} measured")], {}),
        ]),
        ("Plans", [
            ("graph", "Time to plan, of an hour's plans, by trigger", "s", quantiles("lynx_plan_duration_seconds", "trigger", window="1h"), {}),
            ("graph", "Plans by trigger, and what was not possible", "short",
             [(f'sum by (trigger) (increase(lynx_plan_duration_seconds_count{{{SERVER},result="plan"}}[$__rate_interval]))', "{{trigger}}"),
              (f'sum by (result) (increase(lynx_plan_duration_seconds_count{{{SERVER},result!="plan"}}[$__rate_interval]))', "{{result}}")], {}),
            ("graph", "Changes of plans", "short",
             [(f"sum by (decision) (increase(lynx_job_replans_total{{{JOB}}}[$__rate_interval]))", "{{decision}}")], {}),
            ("graph", "Measurements per second", "short", [("sum by (kind, result) (rate(lynx_agent_measurements_total[$__rate_interval]))", "{{kind}} {{result}}")], {}),
            ("graph", "Share of time spent on measuring", "percentunit",
             [("sum by (instance, kind) (rate(lynx_agent_measurement_seconds_total[$__rate_interval]))", "{{instance}} {{kind}}")], {}),
        ]),
    ])

RESILIENCE = dict(
    uid="lynx-resilience", title="Lynx / Resilience", about="What was lost, why, and how long it took to go on.", variables=["server"],
    rows=[
        ("Now", [
            ("stat", "Goodput", "percentunit", [(f"lynx:goodput:ratio_rate5m{{{SERVER}}}", "")], {}),
            ("stat", "Devices that train", "short", [(f"sum({rate('lynx_device_seconds_total', TRAINS)})", "")], {}),
            ("stat", "Lost nodes", "short", [(f'sum(lynx_nodes{{{SERVER},state="lost"}})', "")], {"red_above": 1}),
            ("stat", "Age of the oldest checkpoint", "s",
             [(CHECKPOINT_AGE.format(f"min({with_devices(f'lynx_job_checkpoint_timestamp_seconds{{{SERVER}}}')})"), "")], {}),
        ]),
        ("Goodput", [
            ("graph", "Goodput by job", "percentunit", [(f"lynx_job_goodput_ratio{{{SERVER}}}", "{{job_name}}")], {}),
            ("graph", "What devices do", "short", [(f"sum by (use) ({rate('lynx_device_seconds_total')})", "{{use}}")], {"stack": True}),
            ("graph", "Devices that do not train, by cause", "short", [(f"sum by (cause) ({rate('lynx_device_seconds_lost_total')})", "{{cause}}")],
             {"stack": True}),
            ("graph", "What a job's devices do", "short", [(f"sum by (job_name, use) ({rate('lynx_job_device_seconds_total')})",
                                                            "{{job_name}} {{use}}")], {"stack": True}),
        ]),
        ("Recovery", [
            ("graph", "Time to go on after an hour's losses, by phase", "s", quantiles("lynx_recovery_seconds", "phase", window="1h"), {}),
            ("graph", "Restarts", "short", [(f"sum by (job_name) (increase(lynx_job_restarts_total{{{SERVER}}}[$__rate_interval]))", "{{job_name}}")], {}),
            ("graph", "Resumed from copies in memory", "short",
             [(f"sum by (job_name) (increase(lynx_job_resumes_from_copies_total{{{SERVER}}}[$__rate_interval]))", "{{job_name}}")], {}),
            ("graph", "Ranks that ended", "short", [("sum by (outcome) (increase(lynx_worker_rank_exits_total[$__rate_interval]))", "{{outcome}}")], {}),
        ]),
        ("Checkpoints and copies", [
            ("graph", "Checkpoints", "short", [(f"sum by (job_name) (increase(lynx_job_checkpoints_total{{{SERVER}}}[$__rate_interval]))", "{{job_name}}")], {}),
            ("graph", "Checkpoints that failed", "short",
             [(f"sum by (job_name) (increase(lynx_job_checkpoint_failures_total{{{SERVER}}}[$__rate_interval]))", "{{job_name}}")], {}),
            ("graph", "Age of checkpoints", "s",
             [(CHECKPOINT_AGE.format(f"({with_devices(f'lynx_job_checkpoint_timestamp_seconds{{{SERVER}}}')})"), "{{job_name}}")], {}),
            ("graph", "Copies in memory left out", "short",
             [(f"sum by (job_name) (increase(lynx_job_copies_skipped_total{{{SERVER}}}[$__rate_interval]))", "{{job_name}}")], {}),
        ]),
    ])

CONTROL = dict(
    uid="lynx-control", title="Lynx / Control plane", about="The server itself: its store, its queue, and its nodes' streams.",
    variables=["server"],
    rows=[
        ("Now", [
            ("stat", "Version", "short", [("count by (version) (lynx_build_info)", "{{version}}")], {"name": True}),
            ("stat", "Server", "short", [(f'min(up{{job="lynx-server",{SERVER}}})', "")], {"words": [(0, "down", "red"), (1, "up", "green")]}),
            ("stat", "Leads", "short", [(f"lynx_server_leading{{{SERVER}}}", "{{instance}}")], {"words": [(0, "stands by", "blue"), (1, "leads", "green")]}),
            ("stat", "Leader's number", "short", [(f"max(lynx_server_epoch{{{SERVER}}})", "")], {}),
            ("stat", "Agents", "short", [(f"sum(lynx_agents_attached{{{SERVER}}})", "")], {}),
            ("stat", "Worker daemons", "short", [(f"sum(lynx_workers_attached{{{SERVER}}})", "")], {}),
        ]),
        ("Server", [
            ("graph", "What waits", "short", [(f"sum(lynx_event_queue_length{{{SERVER}}})", "events, to be decided"),
                                              (f"sum(lynx_outbox_length{{{SERVER}}})", "messages to nodes, to be sent")], {}),
            ("graph", "Commit to the store", "s", quantiles("lynx_store_commit_seconds"), {}),
            ("graph", "Commits per second", "short", [(f"sum({rate('lynx_store_commit_seconds_count')})", "all"),
                                                      (f"sum({rate('lynx_store_commit_failures_total')})", "failed")], {}),
        ]),
        ("Calls", [
            ("graph", "Calls per second, by method", "short", [(f"sum by (method) ({rate('lynx_calls_total')})", "{{method}}")], {}),
            ("graph", "99% of calls take less than", "s",
             [(quantile(0.99, "lynx_call_duration_seconds", "method"), "{{method}}")], {}),
            ("graph", "Calls per second, by result", "short", [(f"sum by (code) ({rate('lynx_calls_total')})", "{{code}}"),
                                                               (f"sum({rate('lynx_calls_refused_total')})", "of somebody who may not")], {}),
            ("graph", "Jobs submitted", "short", [(f"sum(increase(lynx_jobs_submitted_total{{{SERVER}}}[$__rate_interval]))", "")], {}),
        ]),
        ("Nodes", [
            ("graph", "Streams", "short", [(f"lynx_agents_attached{{{SERVER}}}", "agents"), (f"lynx_workers_attached{{{SERVER}}}", "workers")], {}),
            ("graph", "Leases renewed per second", "short", [(f"sum({rate('lynx_leases_renewed_total')})", "")], {}),
            ("graph", "Reports of ranks that are not their job's any more", "short", [(f"sum({rate('lynx_fenced_reports_total')})", "")], {}),
        ]),
    ])

DASHBOARDS = [CLUSTER, JOB_BOARD, PLANNER, RESILIENCE, CONTROL]

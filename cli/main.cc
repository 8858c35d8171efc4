// lynxctl: the command line. CLI11 is used here, in connection_options.cc, schedule_options.cc and surface/tree_of_app.cc.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>

#include "absl/strings/str_join.h"
#include "cli/connection_options.h"
#include "cli/frameworks/imported_run.h"
#include "cli/output/exit_code.h"
#include "cli/real_range.h"
#include "cli/schedule_options.h"
#include "cli/surface/commands_surface.h"
#include "cli/surface/tree_of_app.h"
#include "cli/verbs/commands.h"
#include "node/daemon.h"

namespace {

using namespace lynx;       // the namespace of code that all programs share
using namespace lynx::cli;  // the verbs

// The formats of -o for verbs whose output is not a list.
const std::vector<OutputFormat> kPlainText = {OutputFormat::kTable, OutputFormat::kWide};
const std::vector<OutputFormat> kDocument = {OutputFormat::kTable, OutputFormat::kWide, OutputFormat::kJson,
                                             OutputFormat::kYaml};

// Runs the verb. If -o asks for a format that the verb cannot print, reports this and does nothing else.
std::function<void()> Printing(const std::vector<OutputFormat>& known, const GlobalOptions& global, int& code,
                               std::function<int()> run) {
  return [&known, &global, &code, run = std::move(run)] {
    const absl::Status checked = CheckOutput(global.output, known);
    code = checked.ok() ? run() : Fail(checked);
  };
}

std::string FileName(const std::string& text) { return text.empty() ? "needs a name" : ""; }

void AddJobCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* submit = app.add_subcommand("submit", "Submit job files");
  static SubmitOptions submit_options;
  submit
      ->add_option("-f,--file", submit_options.files,
                   "Job file; several are submitted in this order, once all of them have been read")
      ->required();
  submit->add_option("--set", submit_options.overrides, "FIELD=VALUE in place of what the files say, such as train.steps=20");
  submit->add_option("--idempotency-key", submit_options.idempotency_key,
                     "The same key and job never makes a second job; of several files KEY.1, KEY.2 and so on");
  submit->add_flag("-w,--wait", submit_options.wait, "Follow the job to its end; for one file");
  submit->add_flag("--follow", submit_options.follow, "The same, with what its ranks write in place of progress");
  submit->add_flag("--dry-run", submit_options.dry_run, "Check the files and print them with all defaults; submit nothing");
  submit->callback([&] { code = Submit(global, submit_options); });

  auto* list = app.add_subcommand("list", "List jobs, newest first");
  auto* history =
      app.add_subcommand("history", "Jobs that have ended, newest first: how long they waited and took, and why they ended");
  static ListOptions list_options;
  for (CLI::App* command : {list, history}) {
    command->add_option("--limit", list_options.limit, "At most so many")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    command->add_option("--state", list_options.states, "Only those in this state, such as running or failed");
    auto* user = command->add_option("-u,--user", list_options.user,
                                     "Only those of this user; default: for a submitter the own, for all others everybody's");
    command->add_flag("--all-users", list_options.all_users, "Everybody's, also for a submitter")->excludes(user);
  }
  list->callback([&] { code = List(global, list_options); });
  history->callback([&] { code = History(global, list_options); });

  static std::string job;
  auto job_argument = [&](CLI::App* command) {
    command->add_option("job", job, "Job id, a unique prefix of one, or a job's name")->required();
  };
  auto* get = app.add_subcommand("get", "Show one job: plan, predicted and measured, checkpoint");
  static bool events = false;
  job_argument(get);
  get->add_flag("--events", events, "With everything that happened to it");
  get->callback([&] { code = Get(global, job, events); });

  auto* happened = app.add_subcommand("events", "Everything that happened to a job");
  static EventsOptions events_options;
  happened->add_option("job", events_options.job, "Job id, a unique prefix of one, or a job's name")->required();
  happened->add_option("--kind", events_options.kinds, "Only events of this kind, such as checkpoint or rank-lost");
  happened->add_flag("-f,--follow", events_options.follow, "And what happens from now on, until the job has ended");
  happened->callback([&] { code = Events(global, events_options); });

  auto* watch = app.add_subcommand("watch", "Follow a job to its end");
  job_argument(watch);
  watch->callback([&] { code = Watch(global, job); });

  auto* cancel = app.add_subcommand("cancel", "Cancel a job");
  static CancelOptions cancel_options;
  auto* which = cancel->add_option_group("which");
  which->add_option("job", cancel_options.job, "Job id, a unique prefix of one, or a job's name");
  auto* all = which->add_flag("--all", cancel_options.all, "Every job that has not ended; for a submitter the own");
  which->require_option(1);
  cancel->add_option("-u,--user", cancel_options.user, "With --all: only jobs of this user")->needs(all);
  cancel->add_option("--reason", cancel_options.reason, "Kept with the job");
  auto* checkpoint = cancel->add_flag("--checkpoint", cancel_options.checkpoint,
                                      "If it trains, write a checkpoint of the step that it is in first");
  cancel
      ->add_option(
          "--grace", cancel_options.grace,
          "Such as 2min: ranks that have not written it by then are ended; default: as long as it should take, at least 1min")
      ->needs(checkpoint);
  cancel->callback([&] { code = Cancel(global, cancel_options); });
}

// Adds the verbs that look at jobs and nodes: logs, trace, report, top, nodes.
void AddLookCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* logs = app.add_subcommand("logs", "What a job's ranks wrote; the rank that failed first comes first");
  static LogsOptions logs_options;
  logs->add_option("job", logs_options.job, "Job id, a unique prefix of one, or a job's name")->required();
  logs->add_option("--rank", logs_options.rank, "One rank only")->check(CLI::NonNegativeNumber);
  logs->add_option("--stage", logs_options.stage, "Ranks of this pipeline stage of the present plan only")
      ->check(CLI::NonNegativeNumber);
  logs->add_option("--attempt", logs_options.attempt,
                   "Of this start of the job only, the first is 1; default: of all, with --stage of the newest")
      ->check(CLI::PositiveNumber);
  logs->add_option("-n,--lines", logs_options.lines, "Newest lines of each rank")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  logs->add_flag("-f,--follow", logs_options.follow, "And what they write from now on, until the job has ended");
  logs->callback([&] { code = Logs(global, logs_options); });

  auto* trace = app.add_subcommand("trace", "One measured step beside its prediction: where the time of each stage went");
  static TraceOptions trace_options;
  trace->add_option("job", trace_options.job, "Job id, a unique prefix of one, or a job's name")->required();
  trace->add_option("--out", trace_options.out, "Write every action of the step, measured and predicted, as a Chrome trace")
      ->check(FileName);
  trace->callback([&] { code = Trace(global, trace_options); });

  auto* report = app.add_subcommand(
      "report", "Write a job as one page: predicted and measured, what was recomputed, memory, losses, recoveries");
  static ReportOptions report_options;
  report->add_option("job", report_options.job, "Job id, a unique prefix of one, or a job's name")->required();
  report->add_option("--out", report_options.out, "Default: NAME-ID.html in this folder")->check(FileName);
  report->add_flag("--no-comparison", report_options.no_comparison,
                   "Do not plan other recomputation policies beside the job's, which takes time for large models");
  report->callback(Printing(kPlainText, global, code, [&] { return Report(global, report_options); }));

  auto* top = app.add_subcommand(
      "top", "The cluster at a glance, live on a terminal: jobs with their throughput and loss, nodes, queues; q ends it");
  static TopOptions top_options;
  top->add_flag("--once", top_options.once, "Print it once, as plain text; so it is where the output is no terminal");
  top->add_option("--interval", top_options.interval_seconds, "Seconds between two looks")
      ->check(RealRange(0.2, 3600.0))
      ->capture_default_str();
  top->callback([&] { code = Top(global, top_options); });

  auto* nodes = app.add_subcommand("nodes", "List nodes and their devices");
  static std::vector<std::string> names;
  nodes->add_option("node", names, "Only these; default: all");
  nodes->callback([&] { code = Nodes(global, names); });
}

// Options that say what to plan and for which cluster. The offline verbs share them.
void AddPlanInputs(CLI::App& command, PlanOptions& options) {
  command
      .add_option(
          "--for", options.target,
          "What will run the plan: lynx, its own engine; any: choose among every schedule and sharding that the planner knows")
      ->check(CLI::IsMember({"lynx", "any"}))
      ->capture_default_str();
  command
      .add_option("--opt-seconds", options.opt_seconds,
                  "Under recompute opt: about how long the exact solver may take for a stage, at each of at most three tries")
      ->check(RealRange(0.01, 86400.0))
      ->capture_default_str();
  command.add_option("-f,--file", options.file, "Job file")->required();
  command.add_option("--set", options.overrides, "FIELD=VALUE in place of what the file says");
  auto* cluster = command.add_option("--cluster", options.cluster, "Cluster file, such as those in examples/clusters");
  command.add_option("--profile", options.profile,
                     "Hardware profile as JSON, in place of the cluster file's figures for that kind of device; default "
                     "without one: stated figures for one CPU core");
  command
      .add_option("--nodes", options.nodes,
                  "Nodes of the cluster; default: as many as the ranks need, or as the cluster file has")
      ->check(CLI::PositiveNumber);
  command.add_option("--devices-per-node", options.devices_per_node, "Default: all ranks on one node")
      ->check(CLI::PositiveNumber)
      ->excludes(cluster);
  command.add_option("--device-memory", options.device_memory, "Memory of a device, such as 80GiB; default: not checked")
      ->excludes(cluster);
  command
      .add_option("--host-memory", options.host_memory,
                  "Memory of a node that GPUs may offload to, such as 1TiB; default: they do not offload")
      ->excludes(cluster);
  command.add_flag(
      "--keep-node-order", options.keep_node_order,
      "Ranks fill the nodes in the order of the cluster file; default: the order with the fastest plan, if there are "
      "several kinds of nodes");
}

void AddPlanCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* plan = app.add_subcommand("plan", "Plan a job offline, without a server");
  static PlanOptions options;
  AddPlanInputs(*plan, options);
  plan->add_option("--framework", options.framework,
                   "Predict the best that it runs: " + absl::StrJoin(kEnumNames<Framework>, ", "))
      ->capture_default_str();
  plan->add_option("--actions", options.actions_rank, "Print the action program of this rank")->check(CLI::NonNegativeNumber);
  plan->add_option("--html", options.html, "Also write the plan as one page for a browser to this file")->check(FileName);
  plan->add_option("--trace", options.trace, "Also write the predicted step to this file, as a trace for ui.perfetto.dev")
      ->check(FileName);
  plan->callback([&] { code = PlanJob(global, options); });

  auto* export_plan = app.add_subcommand("export", "Plan a job offline, and write the plan for another framework");
  static ExportOptions export_options;
  export_options.plan.target = "any";
  AddPlanInputs(*export_plan, export_options.plan);
  export_plan->add_option("--format", export_options.format, "megatron, deepspeed or torchtitan")->required();
  export_plan->add_option("--target-version", export_options.version,
                          "Version of the framework to write for, as docs/export.md lists them; default: the newest");
  export_plan->add_option("--out", export_options.folder, "Write the files into this folder instead of printing them")
      ->check(FileName);
  export_plan->callback([&] { code = ExportJob(global, export_options); });

  auto* defaults = app.add_subcommand("defaults", "Print a job file with all its defaults");
  static std::string file;
  static bool job_reference = false;
  static bool cluster_reference = false;
  static bool schema = false;
  static std::vector<std::string> overrides;
  auto* filled = defaults->add_option("-f,--file", file, "Fill in this job file");
  defaults->add_option("--set", overrides, "FIELD=VALUE in place of what the file says")->needs(filled);
  auto* fields = defaults->add_flag("--reference", job_reference, "Print the table of all fields instead")->excludes(filled);
  auto* tables =
      defaults->add_flag("--cluster-reference", cluster_reference, "Print the tables of a cluster file's fields instead")
          ->excludes(filled, fields);
  defaults->add_flag("--schema", schema, "Print a JSON Schema of job files for editors instead")
      ->excludes(filled, fields, tables);
  defaults->callback([&] {
    code = Defaults(global, file, overrides,
                    job_reference       ? ReferencePage::kJobFile
                    : schema            ? ReferencePage::kJobSchema
                    : cluster_reference ? ReferencePage::kClusterFile
                                        : ReferencePage::kNone);
  });
}

// Options that say which run of another framework to read.
void AddImportInputs(CLI::App& command, ImportOptions& options) {
  command.add_option("file", options.file, "Script, command line or configuration of the run")->required()->check(FileName);
  command.add_option("--from", options.framework, "Framework of the file: " + ImportedFrameworksText())->required();
  command.add_option("--set", options.set,
                     "NAME=VALUE of a variable of the script, or FIELD=VALUE of the job file, such as model.vocab=32000");
  command.add_option("--devices", options.devices, "Devices of the run; default: as the file says")->check(CLI::PositiveNumber);
  command.add_option("--model", options.model, "config.json of the model, where the file does not describe the model")
      ->check(FileName);
}

void AddImportCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* read = app.add_subcommand("import", "Make a job file from the arguments of another framework's run; runs nothing");
  static ImportOptions options;
  AddImportInputs(*read, options);
  read->add_option("--out", options.out, "Write the job file there instead of printing it")->check(FileName);
  read->callback([&] { code = ImportJob(global, options); });

  auto* audit = app.add_subcommand(
      "audit", "What another framework's run holds and takes, beside its log, and what is faster; 1 if it does not fit");
  static AuditRunOptions audited;
  AddImportInputs(*audit, audited.run);
  audit->add_option("--cluster", audited.cluster, "Cluster file, such as those in examples/clusters")->required();
  audit->add_option("--log", audited.log, "What the framework printed: times of steps and memory")->check(FileName);
  audit->callback([&] { code = AuditRun(global, audited); });
}

void AddCompareCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* compare = app.add_subcommand("compare", "Every recomputation policy side by side, offline");
  static PlanOptions compared;
  AddPlanInputs(*compare, compared);
  compare->add_flag("--opt", compared.opt, "Also recompute opt, the exact choice, with what is proven of it; takes time");
  compare->callback([&] { code = Compare(global, compared); });
  auto* explain = app.add_subcommand("explain", "Why this plan: rejected layouts, and what more would bring");
  static PlanOptions explained;
  AddPlanInputs(*explain, explained);
  explain->callback([&] { code = Explain(global, explained); });
  auto* what_if = app.add_subcommand("whatif", "The plan as things are beside the plan with a change");
  static WhatIfOptions options;
  AddPlanInputs(*what_if, options.base);
  what_if->add_option("--with", options.changes, "FIELD=VALUE of the job file, such as model.seq=32768");
  what_if->add_option("--with-nodes", options.nodes, "Nodes of the cluster (its last group), or +N more");
  what_if->add_option("--with-cluster", options.cluster, "Another cluster file, such as examples/clusters/h200.yaml");
  what_if->callback([&] { code = WhatIf(global, options); });
}

void AddStudioCommand(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* studio = app.add_subcommand("studio", "Plan by looking: a page on this machine, on which plans follow what you choose");
  static StudioOptions options;
  studio->add_option("-f,--file", options.file, "Job file to begin with; default: a preset")->check(FileName);
  studio->add_option("--cluster", options.cluster, "Cluster file to begin with; default: a ready-made one")->check(FileName);
  studio
      ->add_option("--port", options.port,
                   absl::StrCat("Port on 127.0.0.1; default: ", kStudioPort, ", or a free one if that is in use"))
      ->check(CLI::Range(1, 65535));
  studio->add_flag("--open", options.open, "Also show the page in the desktop's browser");
  studio->callback(Printing(kPlainText, global, code, [] { return Studio(options); }));
}

void AddModelCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* models = app.add_subcommand("models", "List the models that a job file can name as model.preset");
  static bool families = false;
  models->add_flag("--families", families,
                   "The families whose config.json a job file can name as model.config, and what is done with each");
  models->callback([&] { code = Models(global, families); });
}

void AddCheckpointCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* checkpoint = app.add_subcommand("checkpoint", "Checkpoints on disk, without a server");
  checkpoint->require_subcommand(1);
  static std::string path;
  const auto path_argument = [](CLI::App* command) {
    command->add_option("path", path, "A checkpoint (.../step-00000100), or a directory of them")->required()->check(FileName);
  };
  auto* inspect = checkpoint->add_subcommand("inspect", "Whose it is, of which model and layout, and what it holds");
  path_argument(inspect);
  inspect->callback([&] { code = InspectCheckpoint(global, path); });
  auto* verify = checkpoint->add_subcommand("verify", "Compare every file with its digest");
  path_argument(verify);
  verify->callback([&] { code = VerifyCheckpoints(global, path); });

  const auto format_and_out = [](CLI::App* command, std::string& format, std::string& out, const char* meaning) {
    command->add_option("--format", format, "hf: a Hugging Face directory, config.json and model.safetensors")
        ->capture_default_str();
    command->add_option("--out", out, meaning)->required()->check(FileName);
  };
  auto* export_weights = checkpoint->add_subcommand("export", "Write the weights for other programs");
  static CheckpointExportOptions export_options{.format = "hf"};
  export_weights->add_option("path", export_options.path, "A checkpoint, or a directory of them: then the newest")
      ->required()
      ->check(FileName);
  format_and_out(export_weights, export_options.format, export_options.out, "Folder, made if need be");
  export_weights->callback(Printing(kPlainText, global, code, [&] { return ExportCheckpoint(export_options); }));
  auto* import = checkpoint->add_subcommand("import", "Make a checkpoint of step 0 from weights of other programs");
  static CheckpointImportOptions import_options{.format = "hf"};
  import
      ->add_option("path", import_options.path,
                   "A folder with config.json and model.safetensors, or its shards and their index")
      ->required()
      ->check(FileName);
  format_and_out(import, import_options.format, import_options.out, "Checkpoint directory, made if need be");
  import->add_option("--seq", import_options.seq, "Tokens per sample; default: the most that the model was made for")
      ->check(CLI::PositiveNumber);
  import->add_flag("--allow-non-finite", import_options.allow_non_finite,
                   "Take weights with NaN or infinity, which are refused otherwise");
  import->callback(Printing(kPlainText, global, code, [&] { return ImportCheckpoint(import_options);
}));
}  // namespace

void AddAdminCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* admin = app.add_subcommand("admin", "Who may call the server, and what was asked of it");
  admin->require_subcommand(1);
  auto* who = admin->add_subcommand("whoami", "Who the server takes you for");
  who->callback(Printing(kDocument, global, code, [&] { return WhoAmI(global); }));

  auto* join = admin->add_subcommand("join-token", "A token with which one node joins, once");
  static JoinTokenOptions join_options;
  join->add_option("--node", join_options.node,
                   "Only this node, even if it has a certificate, which then ends; default: any new one");
  join->add_option("--life", join_options.life, "Such as 2h; default: 24h");
  join->add_option("--out", join_options.out, "Write it to this file, for its owner alone, instead of printing it")
      ->check(FileName);
  join->callback(Printing(kDocument, global, code, [&] { return MakeJoinToken(global, join_options); }));
  auto* forget = admin->add_subcommand("revoke-join-tokens", "Forget all join tokens that have not been used");
  forget->callback(Printing(kDocument, global, code, [&] { return RevokeJoinTokens(global); }));
  static std::string name;
  auto* node = admin->add_subcommand("revoke-node", "End the certificates of a node");
  node->add_option("node", name, "Name of the node")->required();
  node->callback(Printing(kDocument, global, code, [&] { return RevokeNode(global, name); }));

  auto* user = admin->add_subcommand("user", "People, each with a role");
  user->require_subcommand(1);
  static UserOptions user_options;
  auto* add = user->add_subcommand("add", "Add a user with a first token");
  add->add_option("user", user_options.name, "Name")->required();
  add->add_option("--role", user_options.role, "viewer, submitter, operator or admin; each may do what those before it may")
      ->required();
  auto* list = user->add_subcommand("list", "List users with the ids of their tokens");
  list->callback([&] { code = ListUsers(global); });
  auto* revoke = user->add_subcommand("revoke", "Revoke a user with all tokens");
  revoke->add_option("user", name, "Name")->required();
  revoke->callback(Printing(kDocument, global, code, [&] { return RevokeUser(global, name); }));
  auto* token = admin->add_subcommand("token", "Tokens of users");
  token->require_subcommand(1);
  auto* more = token->add_subcommand("add", "Give a user one more token");
  more->add_option("user", user_options.name, "Name")->required();
  for (CLI::App* command : {add, more}) {
    command->add_option("--life", user_options.life, "Of the token, such as 90d; default: no end");
    command
        ->add_option("--context-file", user_options.context_file,
                     "Write the user's context (server, authority, token) to this file instead of printing the token")
        ->check(FileName);
  }
  add->callback(Printing(kDocument, global, code, [&] { return AddUser(global, user_options); }));
  more->callback(Printing(kDocument, global, code, [&] { return AddToken(global, user_options); }));
  auto* end = token->add_subcommand("revoke", "Revoke one token");
  end->add_option("id", name, "Id of the token, as 'user list' shows it")->required();
  end->callback(Printing(kDocument, global, code, [&] { return RevokeToken(global, name); }));

  auto* audit = admin->add_subcommand("audit", "Changes that were asked for and calls that were refused, newest first");
  static AuditOptions audit_options;
  audit->add_option("--limit", audit_options.limit, "At most so many")->check(CLI::Range(1, 1000))->capture_default_str();
  audit->add_flag("--refused", audit_options.refused, "Only calls that were refused");
  audit->callback([&] { code = Audit(global, audit_options); });
  auto* servers = admin->add_subcommand("servers", "The server that leads, and those that stand by");
  servers->callback([&] { code = ListServers(global); });
}

// Says what is wrong with a value for lynx-agent's --devices; "" if the value is right.
std::string DevicesText(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string word = text.substr(0, colon);
  const bool kind = word == "auto" || word == "cpu" || word == "cuda";
  const std::string number = !kind ? text : colon == std::string::npos ? "1" : text.substr(colon + 1);
  int count = 0;
  const bool counts = absl::SimpleAtoi(number, &count) && count >= 1 && count <= 64;
  return counts ? "" : "'" + text + "' is not 1..64, auto, cpu or cuda, or one of these with such a number (cuda:2)";
}

void AddLocalCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* local = app.add_subcommand("local", "A cluster on this machine");
  local->require_subcommand(1);
  static LocalCommandOptions options;
  auto* up = local->add_subcommand("up", "Start what is not running");
  up->add_option("--nodes", options.nodes, "Nodes; default: as the cluster has, 2 for a new one")->check(CLI::Range(1, 64));
  up->add_option(
        "--devices", options.devices,
        "CPU ranks a node, or cuda, cuda:N or auto for this machine's GPUs on one node; default: as the cluster has, 2 "
        "for a new one")
      ->check(DevicesText);
  up->add_option("--link-rate", options.link_rate,
                 "Pace the ranks' connections to stand for a network, such as 1Gbit; default: as the cluster has, not paced "
                 "for a new one");
  up->callback(Printing(kPlainText, global, code, [&] { return LocalUpCommand(options); }));
  auto* status = local->add_subcommand("status", "Daemons and nodes");
  status->callback([&] { code = LocalStatusCommand(global, options); });
  auto* down = local->add_subcommand("down", "Stop everything; jobs and checkpoints stay on disk");
  down->callback(Printing(kPlainText, global, code, [&] { return LocalDownCommand(options); }));
  for (CLI::App* command : {up, status, down}) {
    command->add_option("--dir", options.directory, "Default: $LYNX_HOME/local, else ~/.lynx/local");
  }
}

void AddMachineCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* doctor = app.add_subcommand(
      "doctor", "Check this machine and its cluster, and say how to mend what is wrong; 1 after a warning, 5 after a problem");
  static DoctorOptions doctor_options;
  doctor
      ->add_option("--dir", doctor_options.folder,
                   "Folder on the disk to measure, with a file of 64 MiB; default: the local cluster's")
      ->check(FileName);
  doctor->add_flag("--no-server", doctor_options.no_server, "Look at this machine alone");
  doctor->callback([&] { code = Doctor(global, doctor_options); });

  auto* context = app.add_subcommand("context", "Several clusters by name: each a server's address with authority and token");
  context->require_subcommand(1);
  auto* list = context->add_subcommand("list", "List them; a star marks the one in use");
  list->callback([&] { code = ListContextsCommand(global); });
  static std::string name;
  static bool none = false;
  auto* add =
      context->add_subcommand("add", "Keep the server that --server, --context, --ca-file and --token-file name under a name");
  add->add_option("context", name, "Name")->required();
  add->callback(Printing(kPlainText, global, code, [&] { return AddContextCommand(global, name); }));
  auto* use = context->add_subcommand("use", "Call this one from now on, where no flag or variable names another");
  auto* which = use->add_option_group("which");
  which->add_option("context", name, "Name");
  which->add_flag("--none", none, "No context: the local cluster, or 127.0.0.1:7470");
  which->require_option(1);
  use->callback(Printing(kPlainText, global, code, [&] { return UseContextCommand(none ? "" : name); }));
  auto* remove = context->add_subcommand("remove", "Forget it");
  remove->add_option("context", name, "Name")->required();
  remove->callback(Printing(kPlainText, global, code, [&] { return RemoveContextCommand(name); }));
}

void AddSurfaceCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  auto* completion = app.add_subcommand("completion", "Completion for a shell: source <(lynxctl completion bash)");
  static std::string shell;
  completion->add_option("shell", shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback(Printing(kPlainText, global, code, [&] { return Completion(shell, TreeOf(app)); }));
  auto* man = app.add_subcommand("man", "Manual pages in roff: lynxctl man submit | man -l -");
  static std::string verb, folder;
  man->add_option("verb", verb, "Such as submit or queue-set; default: the page of lynxctl itself");
  man->add_option("--out", folder, "Write all pages into this folder instead")->check(FileName);
  man->callback(Printing(kPlainText, global, code, [&] { return Man(verb, folder, LYNX_VERSION, TreeOf(app)); }));
  auto* reference = app.add_subcommand("reference", "Print the page of all verbs and options");
  reference->callback(Printing(kPlainText, global, code, [&] { return Reference(TreeOf(app)); }));
  auto* complete = app.add_subcommand("__complete", "What completion scripts ask for")->group("");
  static std::string kind;
  complete->add_option("kind", kind, "jobs, nodes, queues, users or contexts")
      ->required()
      ->check(CLI::IsMember({"jobs", "nodes", "queues", "users", "contexts"}));
  complete->callback([&] { code = CompleteNames(global, kind); });
}

// Ends the program without gRPC's orderly shutdown. The shutdown would wait for gRPC's threads one after another, and take
// longer than most calls.
[[noreturn]] void EndProgram(int code) {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    std::fprintf(stderr, "lynxctl: what it prints could not be written whole: %s\n", std::strerror(errno));
    if (code == kExitOk) code = kExitRefused;
  }
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  StopWatchingLockOrder();
  CLI::App app("Plan, submit and follow training jobs");
  app.set_version_flag("--version", LYNX_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(kExitCodeHelp);
  GlobalOptions global;
  AddConnectionOptions(app, global);
  std::map<std::string, OutputFormat> formats;
  for (int i = 0; i <= static_cast<int>(OutputFormat::kName); ++i) {
    formats[OutputFormatName(static_cast<OutputFormat>(i))] = static_cast<OutputFormat>(i);
  }
  app.add_option("-o,--output", global.output,
                 "table, wide (with more columns), json, yaml, csv (of lists), or name (one a line, for scripts)")
      ->transform(CLI::CheckedTransformer(formats, CLI::ignore_case))
      ->option_text("table|wide|json|yaml|csv|name");
  int code = kExitOk;
  AddJobCommands(app, global, code);
  AddLookCommands(app, global, code);
  AddScheduleCommands(app, global, code);
  AddPlanCommands(app, global, code);
  AddImportCommands(app, global, code);
  AddCompareCommands(app, global, code);
  AddStudioCommand(app, global, code);
  AddModelCommands(app, global, code);
  AddCheckpointCommands(app, global, code);
  AddAdminCommands(app, global, code);
  AddLocalCommands(app, global, code);
  AddMachineCommands(app, global, code);
  AddSurfaceCommands(app, global, code);
  NameValues(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    code = app.exit(error) == 0 ? kExitOk : kExitBadInput;
  }
  EndProgram(code);
}

// The verbs of lynxctl. Each prints to standard output and returns an exit code; errors go to standard error as one
// sentence. One thread.
#ifndef LYNX_CLI_VERBS_COMMANDS_H_
#define LYNX_CLI_VERBS_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/connect/client.h"
#include "cli/local/find_server.h"
#include "cli/output/output.h"
#include "common/units.h"

namespace lynx::cli {

struct GlobalOptions {
  ConnectionFlags connection;
  double timeout_seconds = 10;
  OutputFormat output = OutputFormat::kTable;
};

struct SubmitOptions {
  std::vector<std::string> files;      // the job files; at least one
  std::vector<std::string> overrides;  // "train.steps=20"
  std::string idempotency_key;         // "" = a new one; for several files KEY.1, KEY.2, ...
  bool wait = false;                   // follow the job to its end; for one file only
  bool follow = false;                 // like `wait`, but print what the job's ranks write instead of its progress
  bool dry_run = false;                // only print the job files; nothing is submitted
};

struct ListOptions {
  int32_t limit = 100;
  std::vector<std::string> states;  // such as "running"; empty: all states
  std::string user;                 // only this user's jobs; empty: a submitter's own jobs; for other roles, all jobs
  bool all_users = false;           // all jobs also for a submitter
};

struct EventsOptions {
  std::string job;
  std::vector<std::string> kinds;  // such as "checkpoint"; empty: all kinds
  bool follow = false;
};

struct CancelOptions {
  std::string job;
  bool all = false;  // cancel every job that has not ended; it is no error if there is none
  std::string user;  // with `all`: only this user's jobs; empty: a submitter's own jobs; for other roles, all jobs
  std::string reason;
  bool checkpoint = false;
  std::string grace;  // "2min"; "" = the default
};

struct PlanOptions {
  std::string target = "lynx";  // lynx: plan for Lynx's own engine; any: for any framework
  bool opt = false;             // use the exact solver even if the job does not ask for it
  double opt_seconds = 10;      // time limit of the exact solver for each problem
  std::string file;
  std::vector<std::string> overrides;
  std::string cluster;             // cluster file; "" = a uniform cluster by the fields below
  std::string profile;             // a HardwareProfile as JSON; "" = stated figures are used
  int32_t nodes = 0;               // 0 = as many as the job's ranks need, or as the cluster file says
  int32_t devices_per_node = 0;    // 0 = the job's max_ranks
  std::string device_memory;       // "" = unknown
  std::string host_memory;         // memory of a node to which GPUs may offload; "" = unknown
  bool keep_node_order = false;    // true: ranks fill the nodes of a mixed cluster in the order of the cluster file
  std::string framework = "lynx";  // `plan` predicts this framework (a Framework's name)
  int32_t actions_rank = -1;       // print this rank's program instead of the table
  std::string html;                // write the plan as a page to this file
  std::string trace;               // write the predicted step as a trace to this file
};

struct StudioOptions {
  std::string file;     // the job file to begin with; "" = a preset
  std::string cluster;  // the cluster file to begin with; "" = a ready-made machine
  int32_t port = 0;     // 0 = kStudioPort, or a free port if it is in use
  bool open = false;    // show the page in the desktop's browser
};
inline constexpr int32_t kStudioPort = 7480;

struct WhatIfOptions {
  PlanOptions base;
  std::vector<std::string> changes;  // "model.seq=32768", applied after base.overrides
  std::string nodes;                 // "4", or "+2" for two more in the last group; "" = unchanged
  std::string cluster;               // another cluster file; "" = the same one
};

struct ExportOptions {
  PlanOptions plan;
  std::string format;   // an ExportFormat's name
  std::string version;  // version of the framework; "" = the newest that is known
  std::string folder;   // write the files there; "" = print them
};

struct ImportOptions {
  std::string framework;         // a Framework's name
  std::string file;              // script, command line or configuration of that framework
  std::vector<std::string> set;  // "TP_SIZE=4" sets a variable of a script, "model.vocab=32000" a field of the job
  int32_t devices = 0;           // 0 = as the file says
  std::string model;             // config.json of the model; "" = the file describes the model
  std::string out;               // write the job file there; "" = print it
};

struct AuditRunOptions {
  ImportOptions run;
  std::string cluster;  // cluster file
  std::string log;      // what the framework logged; "" = nothing is compared with measurements
};

struct QueueOptions {
  std::string name;
  int32_t weight = 1;
  int32_t quota = 0;
  int32_t user_quota = 0;
  bool no_borrowing = false;
  std::vector<std::string> managers;
};

struct CordonOptions {
  std::vector<std::string> nodes;
  std::string reason;
  bool drain = false;
  std::string grace;  // "10min"; "" = no deadline
};

struct LogsOptions {
  std::string job;
  int32_t rank = -1;
  int32_t stage = -1;   // only ranks of this pipeline stage
  int32_t attempt = 0;  // 0: all attempts, or the newest attempt if a stage is given
  int32_t lines = 100;
  bool follow = false;
};

struct TraceOptions {
  std::string job;
  std::string out;  // write a Chrome trace to this file
};

struct TopOptions {
  bool once = false;
  double interval_seconds = 2;
};

struct DoctorOptions {
  std::string folder;      // the disk of this folder is measured; "" = the local cluster's folder
  bool no_server = false;  // check only this machine
};

struct ReportOptions {
  std::string job;
  std::string out;             // the file to write; "" = NAME-ID.html
  bool no_comparison = false;  // do not plan other policies beside the job's
};

struct CheckpointExportOptions {
  std::string path;    // a checkpoint, or a directory of checkpoints, of which the newest is exported
  std::string format;  // "hf"
  std::string out;     // the folder to write to
};

struct CheckpointImportOptions {
  std::string path;    // a folder with config.json and *.safetensors
  std::string format;  // "hf"
  std::string out;     // the checkpoint directory to write to
  int32_t seq = 0;     // 0 = the length that the model was made for
  bool allow_non_finite = false;
};

struct JoinTokenOptions {
  std::string node;
  std::string life;  // "24h"; "" = the server's default
  std::string out;   // write the token to this file; "" = print it
};

struct UserOptions {
  std::string name;
  std::string role;
  std::string life;
  std::string context_file;  // write the user's context to this file; "" = print the token
};

struct AuditOptions {
  int32_t limit = 100;
  bool refused = false;
};

struct LocalCommandOptions {
  std::string directory;         // "" = LocalDirectory()
  std::optional<int32_t> nodes;  // this and the following fields: see LocalOptions
  std::optional<std::string> devices;
  std::optional<std::string> link_rate;
};

int ImportJob(const GlobalOptions& global, const ImportOptions& options);
// Returns kExitJobFailed if the run does not fit.
int AuditRun(const GlobalOptions& global, const AuditRunOptions& options);
int Submit(const GlobalOptions& global, const SubmitOptions& options);
int List(const GlobalOptions& global, const ListOptions& options);
// Lists jobs that have ended.
int History(const GlobalOptions& global, const ListOptions& options);
int Get(const GlobalOptions& global, const std::string& job, bool events);
int Events(const GlobalOptions& global, const EventsOptions& options);
int Watch(const GlobalOptions& global, const std::string& job);
int Cancel(const GlobalOptions& global, const CancelOptions& options);
int Logs(const GlobalOptions& global, const LogsOptions& options);
// Lists the nodes with these names, or all nodes if `names` is empty.
int Nodes(const GlobalOptions& global, const std::vector<std::string>& names = {});
int Hold(const GlobalOptions& global, const std::string& job, const std::string& reason);
int Release(const GlobalOptions& global, const std::string& job);
int Queues(const GlobalOptions& global);
int SetQueue(const GlobalOptions& global, const QueueOptions& options);
// Changes each node with a call of its own and prints a line for it. Returns the exit code of the worst outcome. If the server
// cannot be reached, no call is made for the remaining nodes.
int Cordon(const GlobalOptions& global, const CordonOptions& options);
int Uncordon(const GlobalOptions& global, const std::vector<std::string>& nodes);
// Shows the newest traced step, measured beside predicted, as a table. If a file is named, also writes the step as a trace for
// viewers.
int Trace(const GlobalOptions& global, const TraceOptions& options);
// Shows an overview of the cluster. On a terminal it is drawn again and again; elsewhere, or with "once", it is plain
// text.
int Top(const GlobalOptions& global, const TopOptions& options);
// Writes a page about the job (report/job_report.h) and prints the file's name.
int Report(const GlobalOptions& global, const ReportOptions& options);
int PlanJob(const GlobalOptions& global, const PlanOptions& options);
// Prints or writes the plan for another framework. What that framework cannot express goes to standard error, or to a
// file beside the others.
int ExportJob(const GlobalOptions& global, const ExportOptions& options);
// The pages about a file: a table of its fields (kJobFile, kClusterFile), or its JSON Schema (kJobSchema).
enum class ReferencePage : uint8_t { kNone, kJobFile, kClusterFile, kJobSchema };
// Shows all policies side by side, in the layout of the job's own plan.
int Compare(const GlobalOptions& global, const PlanOptions& options);
// Shows the layouts that were rejected, and the gain from more of each resource.
int Explain(const GlobalOptions& global, const PlanOptions& options);
// Shows the current plan beside the plan after a change. kExitJobFailed: the changed plan does not fit.
int WhatIf(const GlobalOptions& global, const WhatIfOptions& options);
// Serves the page on which people plan by looking (studio/service.h), on loopback, until SIGINT or SIGTERM.
int Studio(const StudioOptions& options);
// Verbs about who may call the server; see cli/verbs/commands_admin.cc.
int WhoAmI(const GlobalOptions& global);
int MakeJoinToken(const GlobalOptions& global, const JoinTokenOptions& options);
int RevokeJoinTokens(const GlobalOptions& global);
int RevokeNode(const GlobalOptions& global, const std::string& node);
int AddUser(const GlobalOptions& global, const UserOptions& options);
int ListUsers(const GlobalOptions& global);
int RevokeUser(const GlobalOptions& global, const std::string& name);
int AddToken(const GlobalOptions& global, const UserOptions& options);
int RevokeToken(const GlobalOptions& global, const std::string& id);
int Audit(const GlobalOptions& global, const AuditOptions& options);
int ListServers(const GlobalOptions& global);
// Checks whether this machine can run Lynx, and says what to mend. The exit code is that of the worst finding.
int Doctor(const GlobalOptions& global, const DoctorOptions& options);
// Verbs about contexts, which are names for several clusters; see cli/connect/contexts.h. A new context is for the server that
// the flags and the environment name.
int ListContextsCommand(const GlobalOptions& global);
int AddContextCommand(const GlobalOptions& global, const std::string& name);
// `name` is "": no context is in use from now on.
int UseContextCommand(const std::string& name);
int RemoveContextCommand(const std::string& name);
// Prints a job file with every field at its default, or `file` with its defaults filled in, or a table of fields.
int Defaults(const GlobalOptions& global, const std::string& file, const std::vector<std::string>& overrides,
             ReferencePage reference);
// Lists the model presets with their shapes and parameter counts; with `families`, the table of
// planner/problem/model_families.h.
int Models(const GlobalOptions& global, bool families);
// `path`: a checkpoint (".../step-00000100"), which is shown in full, or a directory of checkpoints.
int InspectCheckpoint(const GlobalOptions& global, const std::string& path);
// Compares the digest of every shard. kExitRefused: something is damaged; standard error says what.
int VerifyCheckpoints(const GlobalOptions& global, const std::string& path);
// Prints the path of the exported model.
int ExportCheckpoint(const CheckpointExportOptions& options);
int ImportCheckpoint(const CheckpointImportOptions& options);
int LocalUpCommand(const LocalCommandOptions& options);
int LocalStatusCommand(const GlobalOptions& global, const LocalCommandOptions& options);
int LocalDownCommand(const LocalCommandOptions& options);

Client Connect(const GlobalOptions& global);
// CellText for the chosen format and the current time.
CellText Cells(const GlobalOptions& global);

}  // namespace lynx::cli

#endif  // LYNX_CLI_VERBS_COMMANDS_H_

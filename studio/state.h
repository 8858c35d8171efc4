// StudioState: everything that the studio's page lets people choose, as one JSON value. The page sends it with every question,
// and a link to the studio holds it. From a state follow a job file, a cluster and so a request for a plan.
//
//     {"model":   {"preset": NAME} or {"config": TEXT of a config.json, "name": FILE} or {},
//      "machine": {"name": NAME of a machine} or {"text": TEXT of a cluster file},
//      "job":     {"model.seq": 4096, "parallel.tp": 8, ...}: fields of the job file that do not have their defaults,
//      "nodes": N or 0, "memoryBytes": N or 0, "linkScale": 1.0}
//
// The functions depend only on their arguments; thread-safe.
#ifndef LYNX_STUDIO_STATE_H_
#define LYNX_STUDIO_STATE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/plan/plan.h"

namespace lynx {

// A machine that a state can name: a cluster file.
struct StudioMachine {
  std::string name;
  std::string title;  // one sentence; the file's first comment line
  std::string text;
};
// The machines that are compiled in, by name.
std::vector<StudioMachine> ReadyMachines();

// A field of the job file ("model.seq") with its value as text ("4096").
using JobValue = std::pair<std::string, std::string>;

struct StudioState {
  std::string preset;               // "" = there is a config, or the fields of `job` describe the model
  std::string config, config_name;  // the text of a config.json, and its file's name
  std::string machine_name;         // "" = there is a text
  std::string machine_text;         // of a cluster file
  std::vector<JobValue> job;        // in the order of the job file's fields; each occurs once
  int32_t nodes = 0;                // of the machine's only group; 0 = as the machine says
  Bytes memory;                     // of each device for the job; 0 = as the machine says
  double link_scale = 1;            // multiplies the rate of links between nodes
};

inline constexpr double kMinLinkScale = 0.001, kMaxLinkScale = 1000;
inline constexpr int32_t kMaxStudioNodes = 1 << 20;
inline constexpr Bytes kMaxDeviceMemory{int64_t{1} << 50};

// The values of fields that every job needs, and that a state may leave out.
inline constexpr char kStudioJobName[] = "studio", kStudioData[] = "corpus", kStudioSteps[] = "1000", kStudioBatch[] = "256";

// Reads a state. Unknown keys and fields are errors. InvalidArgument: "FIELD: what is wrong; what would be right", where FIELD
// is a key of the state ("nodes") or a field of the job file.
absl::StatusOr<StudioState> ParseState(const nlohmann::json& json);
nlohmann::json StateJson(const StudioState& state);
// The value as the page writes it: a number, a truth value where the field has one, or a text.
nlohmann::json ValueJson(const JobValue& value);

// What a state asks for.
struct StudioRequest {
  PlanRequest request;
  std::string job_text;      // the job as a job file; if the state has a config, the file names it
  std::string cluster_text;  // the machine's file, before nodes, memory and links were changed
};
// `kept`: values for fields that the state leaves open. InvalidArgument as ParseState, or, if the job file, the config.json or
// the cluster file is wrong, in the form that those readers give, with the file names kJobInErrors, the config's and
// kMachineInErrors.
inline constexpr char kJobInErrors[] = "job file", kMachineInErrors[] = "cluster file";
absl::StatusOr<StudioRequest> RequestOf(const StudioState& state, const std::vector<StudioMachine>& machines,
                                        const std::vector<JobValue>& kept = {});

// The state without the job's fields that have their defaults in it. `state` must have a request.
StudioState Normalized(const StudioState& state, const std::vector<StudioMachine>& machines);

// The fields that hold the layout of a plan, without the number of replicas, so that the layout can be kept when devices are
// added: tp, pp, cp, ep, virtual stages, schedule and so on, and the micro-batch. Nothing for a plan with a schedule of the
// job's own, which the job says itself.
std::vector<JobValue> LayoutValues(const Plan& plan, const JobSpec& spec);

// An error for the page: the field or file that it is about, as far as the text says so.
struct StudioError {
  std::string text;              // without the name of a text that only the studio sees
  std::string field;             // "" = unknown; "machine" if the cluster's text is wrong, "model.config" for the config
  std::string file;              // "" = no file
  int32_t line = 0, column = 0;  // in `file`, counted from 1; 0 = unknown
};
StudioError ErrorOf(const absl::Status& status, const StudioState& state);

}  // namespace lynx

#endif  // LYNX_STUDIO_STATE_H_

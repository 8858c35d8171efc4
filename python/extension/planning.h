// Request and MadePlan: what the package asks the planner, and a plan as an object of Python. The functions need the
// interpreter's lock, and give it up while the planner works.
#ifndef LYNX_PYTHON_EXTENSION_PLANNING_H_
#define LYNX_PYTHON_EXTENSION_PLANNING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/output/plan_answers.h"
#include "planner/plan/plan.h"

namespace lynx::python {

// The texts of a question, as cli::PlanInput describes them, and settings for the answer.
struct RequestTexts {
  std::string job, job_name, folder;
  std::vector<std::string> overrides;
  std::optional<std::string> cluster;  // none: a uniform cluster
  std::string cluster_name;
  std::optional<std::string> profile;  // the text of a profile
  std::string profile_name;
  int32_t nodes = 0, devices_per_node = 0;
  std::string device_memory, host_memory;  // "80GiB"; "" = unknown
  bool any_framework = false;
  bool keep_node_order = false;
  bool exact = false;
  double exact_seconds = 10;
  std::string solver;  // path of lynx-opt
};

// A question that has been read and checked. Immutable.
struct Request {
  PlanRequest request;
  cli::TimesFrom from = cli::TimesFrom::kStatedCore;
  bool keep_node_order = false;

  // The request with its nodes in the order for which the plan is the fastest.
  PlanRequest Arranged() const;
};
std::shared_ptr<const Request> ReadRequest(const RequestTexts& texts);
// Returns the same request, but with devices whose memory has no limit.
std::shared_ptr<const Request> WithoutMemoryLimit(const Request& request);

// A plan, with what is needed to show it. A plan that a server has made has no request, and no programs.
class MadePlan {
 public:
  MadePlan(std::shared_ptr<const PlanRequest> request, std::shared_ptr<const Plan> plan, cli::TimesFrom from)
      : request_(std::move(request)), plan_(std::move(plan)), from_(from) {}

  std::string Table();       // what `lynxctl plan` prints
  std::string Json();        // what `lynxctl plan -o json` prints
  std::string Attributes();  // the attributes of the package's Plan, as JSON
  std::string Html();        // what `lynxctl plan --html` writes
  std::string Trace();       // what `lynxctl plan --trace` writes
  std::string Memory();      // the bytes of each stage by kind, as JSON
  std::string Actions(int32_t rank);

 private:
  // The plan with the programs of the whole step.
  const Plan& Whole();
  // Throws if the request is not known. `what`: what the caller needs the request for.
  void NeedRequest(const char* what) const;

  std::shared_ptr<const PlanRequest> request_;  // null: not known
  std::shared_ptr<const Plan> plan_;
  cli::TimesFrom from_;
  std::optional<std::string> table_;
};

// Throws lynx.Infeasible if the job cannot fit.
std::shared_ptr<MadePlan> PlanOf(const std::shared_ptr<const Request>& request);

}  // namespace lynx::python

#endif  // LYNX_PYTHON_EXTENSION_PLANNING_H_

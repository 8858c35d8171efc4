// PlanRow: a plan among others, as compare, explain and whatif set them beside each other, in every form of -o. Pure;
// thread-safe.
#ifndef LYNX_CLI_OUTPUT_PLAN_ROWS_H_
#define LYNX_CLI_OUTPUT_PLAN_ROWS_H_

#include <string>
#include <vector>

#include "cli/output/output.h"
#include "planner/plan/plan.h"

namespace lynx {

// Points to what it was made of, which outlives it.
struct PlanRow {
  const char* kind = "";                 // among what it stands: "policy", "partition", "layout", "more", ...
  std::string name;                      // "full", "1 GiB more memory per device"
  const PlanRequest* request = nullptr;  // whose devices its MFU is of
  const Plan* plan = nullptr;            // nullptr: there is none
  const Plan* base = nullptr;            // whose throughput its own is compared with; nullptr: no plan's
  std::string note;                      // why there is none, or what is proven of it
};

// What the last column of a table says of a row that has a plan.
enum class LastCell : uint8_t { kNote, kLayers, kLayout };

// Titles: of the first column, of the throughput's, and of the last.
struct PlanTitles {
  std::string name, throughput, last;
};

std::string PlanRowsTable(const std::vector<PlanRow>& rows, const PlanTitles& titles, LastCell last);

// {"plans": [{"kind": ..., "name": ..., "fits": true, "stepNs": ..., ...}, {"kind": ..., "name": ..., "fits": false, "note":
// ...}]}
std::string PlanRowsJson(const std::vector<PlanRow>& rows);
// For csv: the same, a row each, in seconds, bytes and shares.
Listing PlanRowsListing(const std::vector<PlanRow>& rows);

}  // namespace lynx

#endif  // LYNX_CLI_OUTPUT_PLAN_ROWS_H_

// PlanRow: one of several plans that compare, explain and whatif show beside each other, in every format of -o. Pure;
// thread-safe.
#ifndef LYNX_CLI_OUTPUT_PLAN_ROWS_H_
#define LYNX_CLI_OUTPUT_PLAN_ROWS_H_

#include <string>
#include <vector>

#include "cli/output/output.h"
#include "planner/plan/plan.h"

namespace lynx::cli {

// The pointers refer to the objects from which the row was made. These objects must outlive the row.
struct PlanRow {
  const char* kind = "";                 // the kind of alternative: "policy", "partition", "layout", "more", ...
  std::string name;                      // shown in the first column: "full", "1 GiB more memory per device"
  const PlanRequest* request = nullptr;  // MFU is relative to the devices of this request
  const Plan* plan = nullptr;            // nullptr: there is no plan
  // The throughput of `plan` is compared with that of `base`. nullptr: there is no comparison.
  const Plan* base = nullptr;
  std::string note;        // why there is no plan, or what is proven about it
  bool peak_known = true;  // false: the arena of `plan` is not that of the row
};

// The last column of a table, for rows that have a plan.
enum class LastCell : uint8_t { kNote, kLayers, kLayout };

// Titles of the first column, the throughput's column and the last column.
struct PlanTitles {
  std::string name, throughput, last;
};

std::string PlanRowsTable(const std::vector<PlanRow>& rows, const PlanTitles& titles, LastCell last);

// Returns the rows as JSON: {"plans": [{"kind": ..., "name": ..., "fits": true, "stepNs": ..., ...}, {"kind": ..., "name": ...,
// "fits": false, "note": ...}]}
std::string PlanRowsJson(const std::vector<PlanRow>& rows);
// A listing for csv, with the values of PlanRowsJson: one plan per row, in seconds, bytes and shares.
Listing PlanRowsListing(const std::vector<PlanRow>& rows);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_PLAN_ROWS_H_

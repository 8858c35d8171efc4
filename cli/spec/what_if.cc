#include "cli/spec/what_if.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

// Reads a number, or "+N" for N more than `base`.
absl::StatusOr<int32_t> CountOf(const std::string& option, const std::string& text, int32_t base) {
  const bool more = !text.empty() && text[0] == '+';
  int32_t count = 0;
  if (!absl::SimpleAtoi(more ? text.substr(1) : text, &count) || count < 1 || count > (1 << 20) - base) {
    return absl::InvalidArgumentError(absl::StrCat(option, " ", text, ": expected a number of nodes, or +N more"));
  }
  return more ? base + count : count;
}

}  // namespace

absl::Status ChangeNodes(const PlanRequest& base, const std::string& nodes, PlanRequest& changed) {
  if (!nodes.empty()) {
    NodeGroup& last = changed.cluster.groups.back();
    LYNX_ASSIGN_OR_RETURN(last.nodes, CountOf("--with-nodes", nodes, last.nodes));
  }
  // More devices help only if the job may use them. The limit of the job is max_ranks.
  int32_t& max_ranks = changed.spec.resources.max_ranks;
  const bool all = base.spec.resources.max_ranks == base.cluster.devices();
  if (all && max_ranks == base.spec.resources.max_ranks) max_ranks = changed.cluster.devices();
  return absl::OkStatus();
}

}  // namespace lynx::cli

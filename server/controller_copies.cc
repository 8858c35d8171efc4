// Copies of states in the memory of nodes: worker daemons keep them for the next generation of a job, and the server says when
// there will be none. See controller.h.
#include "server/controller.h"

namespace lynx {

void Controller::NoteCopies(Node& node, const std::set<JobId>& copies) {
  if (node.copies == copies) return;
  node.copies = copies;
  if (!EndedOf(node).empty()) worker_dirty_.insert(node.name);
}

std::vector<JobId> Controller::EndedOf(const Node& node) const {
  std::vector<JobId> ended;
  for (const JobId& id : node.copies) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || IsFinal(job->second.record.state)) ended.push_back(id);
  }
  return ended;
}

void Controller::TouchHoldersOf(const Job& job) {
  for (const auto& [name, node] : nodes_) {
    if (node.copies.contains(job.record.id)) worker_dirty_.insert(name);
  }
}

}  // namespace lynx

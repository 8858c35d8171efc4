// Copies of states in the memory of nodes: worker daemons keep them for the next generation of a job, and the server tells them
// when there will be no next one. See controller.h.
#include <utility>

#include "server/controller/controller.h"

namespace lynx {

void Controller::NoteCopies(Node& node, const std::set<JobId>& copies) {
  if (node.copies == copies) return;
  ForgetCopies(node);
  node.copies = copies;
  for (const JobId& id : copies) holders_[id].insert(node.name);
  if (!EndedOf(node).empty()) worker_dirty_.insert(node.name);
}

void Controller::ForgetCopies(Node& node) {
  for (const JobId& id : std::exchange(node.copies, {})) {
    const auto holders = holders_.find(id);
    holders->second.erase(node.name);
    if (holders->second.empty()) holders_.erase(holders);
  }
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
  const auto holders = holders_.find(job.record.id);
  if (holders != holders_.end()) worker_dirty_.insert(holders->second.begin(), holders->second.end());
}

}  // namespace lynx

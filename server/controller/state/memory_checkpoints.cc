#include "server/controller/state/memory_checkpoints.h"

#include <utility>

namespace lynx::server {

void MemoryCheckpoints::Note(LiveNode& node, const std::set<JobId>& copies) {
  if (node.copies == copies) return;
  Forget(node);
  node.copies = copies;
  for (const JobId& id : copies) holders_[id].insert(node.name);
  if (!EndedOf(node).empty()) step_.TellWorker(node.name);
}

void MemoryCheckpoints::Forget(LiveNode& node) {
  for (const JobId& id : std::exchange(node.copies, {})) {
    const auto holders = holders_.find(id);
    holders->second.erase(node.name);
    if (holders->second.empty()) holders_.erase(holders);
  }
}

std::vector<JobId> MemoryCheckpoints::EndedOf(const LiveNode& node) const {
  std::vector<JobId> ended;
  for (const JobId& id : node.copies) {
    const LiveJob* job = jobs_.Find(id);
    if (job == nullptr || IsFinal(job->record.state)) ended.push_back(id);
  }
  return ended;
}

void MemoryCheckpoints::TellHoldersOf(const LiveJob& job) {
  const auto holders = holders_.find(job.record.id);
  if (holders == holders_.end()) return;
  for (const NodeId& node : holders->second) step_.TellWorker(node);
}

}  // namespace lynx::server

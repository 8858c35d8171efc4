// Listings of the things in a cluster: jobs, nodes, queues, events. Pure; thread-safe.
#ifndef LYNX_CLI_OUTPUT_LISTINGS_H_
#define LYNX_CLI_OUTPUT_LISTINGS_H_

#include <vector>

#include "cli/output/output.h"
#include "lynx/v1/admin.pb.h"
#include "lynx/v1/cluster.pb.h"
#include "lynx/v1/jobs.pb.h"

namespace lynx::cli {

Listing JobListing(const std::vector<v1::Job>& jobs, const CellText& cells);
// A listing of jobs that have ended: how long they waited and trained, how often they were restarted, and why they ended.
Listing HistoryListing(const std::vector<v1::Job>& jobs, const CellText& cells);
Listing NodeListing(const std::vector<v1::Node>& nodes, const CellText& cells);
Listing QueueListing(const std::vector<v1::Queue>& queues, const CellText& cells);
// The notes of the listing name the servers whose --encrypt-ranks is not that of the server that leads.
Listing ServerListing(const std::vector<v1::ListedServer>& servers, const CellText& cells);
Listing EventListing(const std::vector<v1::JobEvent>& events, const CellText& cells);

// The state of the node in short: "ready", "no worker", "away", "ready,draining".
std::string NodeState(const v1::Node& node);

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_LISTINGS_H_

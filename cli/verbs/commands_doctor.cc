// doctor: checks whether this machine can run Lynx.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/connect/server_place.h"
#include "cli/local/doctor.h"
#include "cli/output/exit_code.h"
#include "cli/output/listings.h"
#include "cli/verbs/commands.h"
#include "common/clock.h"

namespace lynx::cli {
namespace {

ServerFacts AskServer(const GlobalOptions& global) {
  Client client = Connect(global);
  ServerFacts facts{.source = client.server().source};
  for (const Client::Seen& one : client.LookAtAll()) facts.all.push_back({one.address, one.status, one.leader});
  const RealClock clock;
  // If another server has begun to lead meanwhile, the second call goes to it at once, and its time says something of the
  // clock.
  auto nodes = client.Nodes();
  const Nanos asked = clock.Monotonic();
  if (nodes.ok() && !facts.all.empty()) nodes = client.Nodes();
  const Nanos took = clock.Monotonic() - asked;
  facts.status = nodes.status();
  facts.address = client.present();
  facts.is_here = IsThisMachine(facts.address);
  if (!nodes.ok()) return facts;
  facts.version = nodes->server_version();
  // The server read its clock at some time during the call. The best guess for this time is the middle of the call.
  facts.clock_error_ns = took.value / 2;
  facts.clock_ahead_ns = nodes->server_time_unix_ns() - (clock.Wall() - took / 2).value;
  for (const v1::Node& node : nodes->nodes())
    facts.nodes.push_back({node.name(), NodeState(node), node.agent_version(), node.worker_version()});
  return facts;
}

// The local cluster's folder, or the nearest folder above it that exists. If there is no home, the current folder.
std::string DefaultFolder() {
  std::error_code error;
  std::filesystem::path folder = LocalDirectory();
  if (folder.empty()) return std::filesystem::current_path(error).string();
  while (!std::filesystem::is_directory(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

int Doctor(const GlobalOptions& global, const DoctorOptions& options) {
  MachineFacts facts = LookAtMachine(options.folder.empty() ? DefaultFolder() : options.folder);
  if (!options.no_server) facts.server = AskServer(global);
  const std::vector<Finding> findings = Diagnose(facts);
  Listing listing{.columns = {{"", "verdict"}, {"WHAT", "what"}, {"FOUND", "found"}, {"MEND", "mend"}}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    listing.rows.push_back({VerdictName(finding.verdict), finding.what, finding.found, finding.mend});
    list.push_back(
        {{"verdict", VerdictName(finding.verdict)}, {"what", finding.what}, {"found", finding.found}, {"mend", finding.mend}});
  }
  const nlohmann::ordered_json json = {{"findings", list}};
  const int shown =
      ShowListing(global.output, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n", listing);
  if (shown != kExitOk) return shown;
  switch (WorstOf(findings)) {
    case Verdict::kOk:
    case Verdict::kHint: return kExitOk;
    case Verdict::kWarning: return kExitJobFailed;
    case Verdict::kProblem: return kExitRefused;
  }
  return kExitRefused;
}

}  // namespace lynx::cli

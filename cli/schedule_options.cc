#include "cli/schedule_options.h"

#include <CLI/CLI.hpp>
#include <string>

#include "cli/verbs/commands.h"

namespace lynx::cli {

void AddScheduleCommands(CLI::App& app, const GlobalOptions& global, int& code) {
  static std::string job, reason;
  auto* hold = app.add_subcommand("hold", "Let a job wait; one that trains gives way with a checkpoint");
  auto* release = app.add_subcommand("release", "Let a held job go on");
  for (CLI::App* command : {hold, release}) {
    command->add_option("job", job, "Job id, a unique prefix of one, or a job's name")->required();
  }
  hold->add_option("--reason", reason, "Kept with the job");
  hold->callback([&] { code = Hold(global, job, reason); });
  release->callback([&] { code = Release(global, job); });

  auto* queue = app.add_subcommand("queue", "Queues: who has which share of the cluster");
  queue->require_subcommand(1);
  auto* list = queue->add_subcommand("list", "List queues with what they have");
  list->callback([&] { code = Queues(global); });
  auto* set = queue->add_subcommand("set", "Make a queue, or set all that it may have anew: what is not given has its default");
  static QueueOptions options;
  set->add_option("queue", options.name, "Name, as scheduling.queue of job files")->required();
  set->add_option("--weight", options.weight, "Share beside other queues in which jobs wait")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  set->add_option("--quota", options.quota, "Devices that its jobs have while others wait; 0: no limit")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  set->add_option("--user-quota", options.user_quota, "Devices that its jobs of one user have while others wait; 0: no limit")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  set->add_flag("--no-borrowing", options.no_borrowing, "Never more than these quotas, even where nobody waits");
  set->add_option("--manager", options.managers,
                  "User who may cancel, hold and release all jobs of the queue; may be given several times")
      ->allow_extra_args(false);
  set->callback([&] { code = SetQueue(global, options); });

  auto* node = app.add_subcommand("node", "Take nodes out of use, and back");
  node->require_subcommand(1);
  static CordonOptions cordon_options;
  auto* list_nodes = node->add_subcommand("list", "List nodes and their devices");
  list_nodes->callback([&] { code = Nodes(global); });
  auto* cordon = node->add_subcommand("cordon", "Give nodes no new ranks; those that they have go on");
  auto* drain = node->add_subcommand("drain", "Give nodes no new ranks, and let those that they have go elsewhere or wait");
  auto* uncordon = node->add_subcommand("uncordon", "Give nodes ranks again");
  for (CLI::App* command : {cordon, drain, uncordon}) {
    command->add_option("node", cordon_options.nodes, "Names of nodes")->required();
    if (command != uncordon) command->add_option("--reason", cordon_options.reason, "Shown with the nodes");
  }
  drain->add_option(
      "--grace", cordon_options.grace,
      "Such as 10min: what has not left by then is ended, and goes on from its newest checkpoint; default: no end");
  cordon->callback([&] { code = Cordon(global, cordon_options); });
  drain->callback([&] {
    cordon_options.drain = true;
    code = Cordon(global, cordon_options);
  });
  uncordon->callback([&] { code = Uncordon(global, cordon_options.nodes); });
}

}  // namespace lynx::cli

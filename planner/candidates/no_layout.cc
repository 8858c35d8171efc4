#include "planner/candidates/no_layout.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/candidates/search.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/stage_context.h"

namespace lynx {
namespace {

using enum ScheduleKind;
using Reason = std::optional<std::string>;

// If a field has at most this number of possible values, the message lists them.
constexpr size_t kMaxListed = 4;

std::string Listed(const std::set<int64_t>& values) {
  std::vector<int64_t> first(values.begin(), values.end());
  const bool more = first.size() > kMaxListed;
  if (more) first.resize(kMaxListed);
  return absl::StrCat(absl::StrJoin(first, more ? ", " : " or "), more ? ", ..." : "");
}

// The numbers of the request, and the rules that can exclude every layout.
class Rules {
 public:
  Rules(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target, bool even_batches)
      : spec_(spec), cluster_(cluster), p_(spec.parallel), even_batches_(even_batches), layers_(spec.model.layers),
        batch_(spec.train.global_batch), least_ranks_(spec.resources.min_ranks),
        most_ranks_(std::min<int64_t>(spec.resources.max_ranks, cluster.devices())) {
    const auto pin = [&](const char* field, int64_t value) {
      if (value == 0) return;
      names_.emplace_back(field);
      values_.push_back(value);
      pinned_ *= value;
    };
    pin("parallel.tp", p_.tp);
    // 1 is the default value, so it is not listed as pinned.
    pin("parallel.cp", p_.cp > 1 ? p_.cp : 0);
    pin("parallel.pp", p_.pp);
    pin("parallel.dp", p_.dp);
    const bool one_context = p_.cp > 0 || target == PlanTarget::kLynxEngine;
    whole_ = p_.tp > 0 && p_.pp > 0 && p_.dp > 0 && one_context;
    if (p_.tp > 0 && p_.pp > 0 && one_context) FindReplicas();
  }

  // The first rule that excludes every layout.
  Reason First() const {
    using Rule = Reason (Rules::*)() const;
    for (const Rule rule : {&Rules::Node, &Rules::Experts, &Rules::Chunks, &Rules::Pipeline, &Rules::Ranks, &Rules::Batch,
                            &Rules::Replicas, &Rules::ZeroGroup, &Rules::Microbatches}) {
      if (Reason reason = (this->*rule)()) return reason;
    }
    return std::nullopt;
  }

 private:
  Reason Node() const {
    const int32_t least = cluster_.least_devices_per_node();
    if (p_.tp <= least) return std::nullopt;
    return absl::StrCat("parallel.tp is ", p_.tp, ", but a node has ", least,
                        " devices and a tensor-parallel group stays on one node: use at most ", least);
  }

  // All ranks of an expert group must be in one stage.
  Reason Experts() const {
    const int64_t most = most_ranks_ / std::max(1, p_.pp);
    if (p_.ep <= most) return std::nullopt;
    return absl::StrCat("parallel.ep is ", p_.ep, ", but a stage has at most ", most,
                        " ranks, which share its experts: use at most ", most);
  }

  // Every chunk must have at least one layer.
  Reason Chunks() const {
    const int32_t each = p_.schedule == kZeroBubbleV ? 2 : std::max(p_.virtual_stages, 1);
    const int32_t least_pp = p_.pp > 0 ? p_.pp : p_.virtual_stages > 1 ? 2 : 1;
    const int64_t chunks = int64_t{each} * least_pp;
    if (chunks <= layers_) return std::nullopt;
    const std::string rest = absl::StrCat(" chunks, but model.layers is ", layers_, ", and every chunk needs a layer: use ");
    if (p_.schedule == kZeroBubbleV) {
      return absl::StrCat("parallel.schedule zero-bubble-v cuts the model into 2 * parallel.pp = ", chunks, rest,
                          layers_ < 2 ? std::string("another schedule") : absl::StrCat("parallel.pp of at most ", layers_ / 2));
    }
    if (each == 1) return std::nullopt;  // ValidateJobSpec has checked this case
    const int64_t fewer = layers_ / least_pp;
    const std::string instead =
        fewer < 2    ? std::string("parallel.virtualStages 1")
        : p_.pp == 0 ? absl::StrCat("parallel.virtualStages of at most ", fewer)
                     : absl::StrCat("parallel.virtualStages of at most ", fewer,
                                    layers_ / each > 1 ? absl::StrCat(" or parallel.pp of at most ", layers_ / each) : "");
    return absl::StrCat("parallel.pp * parallel.virtualStages is ", p_.pp > 0 ? "" : "at least ", least_pp, " * ", each, " = ",
                        chunks, rest, instead);
  }

  // Rules of the schedules for the number of stages and of virtual stages.
  Reason Pipeline() const {
    if (p_.schedule == kInterleaved && p_.virtual_stages == 1) {
      return "parallel.schedule interleaved needs parallel.virtualStages above 1, but it is 1: use schedule 1f1b or "
             "auto";
    }
    const bool interleaved = p_.schedule == kInterleaved || (p_.virtual_stages > 1 && p_.schedule != kCustom);
    if (interleaved && (p_.pp == 1 || most_ranks_ == 1)) {
      const std::string what = p_.virtual_stages > 1 ? absl::StrCat("parallel.virtualStages ", p_.virtual_stages)
                                                     : std::string("parallel.schedule interleaved");
      return absl::StrCat(what, " needs parallel.pp above 1, but ",
                          p_.pp == 1 ? "parallel.pp is 1" : "the job may have 1 rank only",
                          ": use parallel.virtualStages 1 and schedule auto, or more stages");
    }
    if (p_.schedule == kChimera && p_.pp % 2 != 0) {
      return absl::StrCat("parallel.schedule chimera needs an even parallel.pp, but it is ", p_.pp, ": use ", p_.pp + 1,
                          p_.pp > 1 ? absl::StrCat(" or ", p_.pp - 1) : "", ", or another schedule");
    }
    return std::nullopt;
  }

  // Text such as "parallel.tp * parallel.pp = 2 * 3 = 6" or "parallel.tp = 2".
  std::string Product() const {
    const std::string names = absl::StrJoin(names_, " * ");
    if (names_.size() == 1) return absl::StrCat(names, " = ", pinned_);
    return absl::StrCat(names, " = ", absl::StrJoin(values_, " * "), " = ", pinned_);
  }

  // Text such as "resources.ranks is 8".
  std::string RanksText() const {
    if (least_ranks_ == spec_.resources.max_ranks) return absl::StrCat("resources.ranks is ", least_ranks_);
    return absl::StrCat(
        "resources.ranks is ", least_ranks_, "..", spec_.resources.max_ranks,
        most_ranks_ < spec_.resources.max_ranks ? absl::StrCat(" and the cluster has ", cluster_.devices(), " devices") : "");
  }

  // Returns a reason if no allowed number of ranks is a multiple of the product of the pinned degrees. If all degrees are
  // pinned, the product itself must be an allowed number.
  Reason Ranks() const {
    const int64_t last = most_ranks_ / pinned_ * pinned_;
    if (whole_) {
      if (pinned_ >= least_ranks_ && pinned_ <= most_ranks_) return std::nullopt;
      return absl::StrCat(RanksText(), ", but the job fixes ", Product(), ": use resources.ranks ", pinned_,
                          ", or leave one of these to the planner (auto)");
    }
    if (last >= least_ranks_ && last > 0) return std::nullopt;
    if (pinned_ > most_ranks_) {
      return absl::StrCat(RanksText(), ", which is less than ", Product(), ": use at least ", pinned_,
                          " ranks, or smaller degrees");
    }
    std::set<int64_t> instead{last};
    if (last + pinned_ <= cluster_.devices()) instead.insert(last + pinned_);
    return absl::StrCat(RanksText(), least_ranks_ == most_ranks_ ? ", which is not" : ", which holds no",
                        least_ranks_ == most_ranks_ ? " a multiple of " : " multiple of ", Product(), ": use ", Listed(instead),
                        " ranks, or leave a degree to the planner (auto)");
  }

  // Rules for the batch that do not depend on the ranks.
  Reason Batch() const {
    const int32_t size = std::max(spec_.train.micro_batch, 1), replicas = std::max(p_.dp, 1);
    if (AllowsBatch(replicas, size)) return std::nullopt;
    return BadBatch({int64_t{size} * replicas}, p_.dp > 0 ? absl::StrCat("parallel.dp = ", p_.dp) : std::string());
  }

  // If the other degrees are pinned, the ranks determine the number of replicas.
  void FindReplicas() {
    for (int64_t ranks = (least_ranks_ + pinned_ - 1) / pinned_ * pinned_; ranks <= most_ranks_; ranks += pinned_) {
      replicas_.insert(p_.dp > 0 ? p_.dp : ranks / pinned_);
    }
  }

  bool AllowsBatch(int64_t replicas, int32_t size) const {
    return Allows({batch_, static_cast<int32_t>(replicas), size}, even_batches_);
  }

  Reason BadBatch(const std::set<int64_t>& by, const std::string& replicas) const {
    const int32_t size = spec_.train.micro_batch;
    if (!even_batches_) {
      const std::string batch = absl::StrCat("train.globalBatch is ", batch_);
      if (size == 0) return absl::StrCat(batch, ", which is less than ", replicas, ", and every replica needs a sample");
      return absl::StrCat(batch, ", and with ", replicas,
                          " no replica gets the samples of one microbatch, train.microBatch = ", size);
    }
    std::string what = replicas;
    if (size > 0)
      what = replicas.empty() ? absl::StrCat("train.microBatch = ", size)
                              : absl::StrCat("train.microBatch * parallel.dp = ", Listed(by));
    return absl::StrCat("train.globalBatch is ", batch_, ", which is not a multiple of ", what);
  }

  Reason Replicas() const {
    if (replicas_.empty()) return std::nullopt;
    const int32_t size = std::max(spec_.train.micro_batch, 1);
    std::set<int64_t> samples;
    for (const int64_t dp : replicas_) {
      if (AllowsBatch(dp, size)) return std::nullopt;
      samples.insert(dp * size);
    }
    return absl::StrCat(*BadBatch(samples, absl::StrCat("parallel.dp = ", Listed(replicas_))), ": ", RanksText(), " and ",
                        Product(), " leave ", Listed(replicas_), " replicas (parallel.dp)",
                        "; change train.globalBatch, resources.ranks or a degree");
  }

  Reason ZeroGroup() const {
    const int32_t group = p_.zero_group;
    const auto whole = [&](int64_t dp) { return dp % group == 0; };
    if (group == 0 || replicas_.empty() || std::any_of(replicas_.begin(), replicas_.end(), whole)) return std::nullopt;
    return absl::StrCat("parallel.zeroGroup is ", group, ", and parallel.dp must be a multiple of it, but ", RanksText(),
                        " and ", Product(), " leave ", Listed(replicas_),
                        " replicas (parallel.dp): change resources.ranks, a degree or "
                        "parallel.zeroGroup");
  }

  // The numbers of microbatches per replica and step that the batch allows, for the possible numbers of replicas.
  std::set<int64_t> PossibleMicrobatches() const {
    std::set<int64_t> counts;
    for (const int64_t dp : replicas_) {
      for (int32_t size = 1; size <= kMaxAutoMicroBatch; size *= 2) {
        const int32_t samples = spec_.train.micro_batch > 0 ? spec_.train.micro_batch : size;
        if (AllowsBatch(dp, samples)) counts.insert(BatchSplit{batch_, static_cast<int32_t>(dp), samples}.microbatches());
      }
    }
    return counts;
  }

  Reason Microbatches() const {
    const std::set<int64_t> counts = PossibleMicrobatches();
    if (counts.empty()) return std::nullopt;
    const std::string are =
        absl::StrCat(" microbatches (train.globalBatch / (parallel.dp * train.microBatch)), here of ", Listed(counts));
    const auto every = [&](const auto& fails) { return std::all_of(counts.begin(), counts.end(), fails); };
    const int64_t pp = p_.pp;
    const bool interleaved = p_.schedule == kInterleaved || (p_.virtual_stages > 1 && p_.schedule == kAuto);
    if (interleaved && even_batches_ && every([&](int64_t m) { return m % pp != 0; })) {
      return absl::StrCat("for other frameworks the interleaved schedule",
                          p_.virtual_stages > 1 ? absl::StrCat(" (parallel.virtualStages ", p_.virtual_stages, ")") : "",
                          " needs a multiple of parallel.pp = ", pp, are,
                          ": change train.globalBatch or parallel.pp, or use parallel.virtualStages 1 and schedule auto");
    }
    if (p_.schedule == kChimera && every([](int64_t m) { return m % 2 != 0; })) {
      return absl::StrCat("parallel.schedule chimera needs an even number of", are,
                          ": change train.globalBatch or train.microBatch, or use another schedule");
    }
    if (p_.schedule == kCustom) {
      const int64_t wanted = PinnedLayout(p_).custom.schedule->microbatches;
      if (counts.contains(wanted)) return std::nullopt;
      return absl::StrCat("the custom schedule is one of ", wanted, are, ": use train.globalBatch of ", wanted,
                          " * parallel.dp * train.microBatch");
    }
    const bool splits = p_.schedule != kAuto && SplitsWeight(PinnedLayout(p_));
    const int64_t slots = PipelineOf(PinnedLayout(p_)).pieces() * int64_t{splits ? 3 : 2};
    if (!every([&](int64_t m) { return m > kMaxScheduleSlots / slots; })) return std::nullopt;
    return absl::StrCat("a schedule has at most ", kMaxScheduleSlots, " slots, each microbatch takes ", slots, " on ", pp,
                        " stages: too many", are,
                        ": use a larger train.microBatch or parallel.dp, or a smaller train.globalBatch");
  }

  const JobSpec& spec_;
  const ClusterTopology& cluster_;
  const ParallelSpec& p_;
  const bool even_batches_;
  const int32_t layers_, batch_;
  const int64_t least_ranks_, most_ranks_;
  std::vector<std::string> names_;  // names of the pinned degrees
  std::vector<int64_t> values_;
  int64_t pinned_ = 1;          // product of the pinned degrees
  bool whole_ = false;          // true if all degrees are pinned
  std::set<int64_t> replicas_;  // possible numbers of replicas if all other degrees are pinned; else empty
};

// A field that the job pins, and how to leave it to the planner.
struct Pin {
  std::string text;
  std::function<void(JobSpec&)> leave_open;
};

std::vector<Pin> PinsOf(const JobSpec& spec) {
  std::vector<Pin> pins;
  const auto degree = [&](const char* field, int32_t ParallelSpec::*value) {
    if (spec.parallel.*value == 0) return;
    pins.push_back({absl::StrCat(field, " ", spec.parallel.*value), [value](JobSpec& s) { s.parallel.*value = 0; }});
  };
  degree("parallel.tp", &ParallelSpec::tp);
  degree("parallel.pp", &ParallelSpec::pp);
  degree("parallel.dp", &ParallelSpec::dp);
  degree("parallel.cp", &ParallelSpec::cp);
  degree("parallel.ep", &ParallelSpec::ep);
  degree("parallel.virtualStages", &ParallelSpec::virtual_stages);
  degree("parallel.zeroGroup", &ParallelSpec::zero_group);
  if (spec.parallel.schedule == kCustom) return pins;  // a custom schedule fixes the pipeline's degrees
  if (spec.parallel.schedule != kAuto) {
    pins.push_back({absl::StrCat("parallel.schedule ", EnumName(spec.parallel.schedule)),
                    [](JobSpec& s) { s.parallel.schedule = kAuto; }});
  }
  if (spec.train.micro_batch > 0) {
    pins.push_back({absl::StrCat("train.microBatch ", spec.train.micro_batch), [](JobSpec& s) { s.train.micro_batch = 0; }});
  }
  return pins;
}

// Looks for changes of one field of the job after which layouts exist. Returns them as the end of a sentence: "; there are
// layouts with parallel.pp left to the planner (auto), or with resources.ranks 6 or 8".
std::string WhatWouldDo(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target, bool even_batches) {
  std::vector<std::string> open;
  for (const Pin& pin : PinsOf(spec)) {
    JobSpec changed = spec;
    pin.leave_open(changed);
    if (!SearchSpace(changed, cluster, target, even_batches).empty()) open.push_back(pin.text.substr(0, pin.text.find(' ')));
  }
  JobSpec any = spec;
  any.resources.min_ranks = 1;
  any.resources.max_ranks = cluster.devices();
  int64_t below = 0, above = 0;
  for (const Candidate& candidate : SearchSpace(any, cluster, target, even_batches)) {
    const int64_t ranks = candidate.layout.ranks();
    if (ranks < spec.resources.min_ranks) below = std::max(below, ranks);
    if (ranks > spec.resources.max_ranks) above = above == 0 ? ranks : std::min(above, ranks);
  }
  std::vector<std::string> help;
  if (!open.empty()) help.push_back(absl::StrCat(absl::StrJoin(open, " or "), " left to the planner (auto)"));
  std::set<int64_t> ranks;
  for (const int64_t count : {below, above}) {
    if (count > 0) ranks.insert(count);
  }
  if (!ranks.empty()) help.push_back(absl::StrCat("resources.ranks ", Listed(ranks)));
  if (help.empty()) return "; change train.globalBatch, resources.ranks or parallel";
  return absl::StrCat("; there are layouts with ", absl::StrJoin(help, ", or with "));
}

}  // namespace

absl::Status ExplainNoLayout(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target, bool even_batches) {
  if (const Reason reason = Rules(spec, cluster, target, even_batches).First()) {
    return absl::InvalidArgumentError(absl::StrCat("no parallel layout is possible: ", *reason));
  }
  std::vector<std::string> pinned;
  for (const Pin& pin : PinsOf(spec)) pinned.push_back(pin.text);
  const ModelSpec& model = spec.model;
  return absl::InvalidArgumentError(
      absl::StrCat("no parallel layout of ", spec.resources.min_ranks, " to ",
                   std::min<int64_t>(spec.resources.max_ranks, cluster.devices()),
                   " ranks is possible: parallel.tp must divide model.heads ", model.heads,
                   model.key_heads() != model.heads ? absl::StrCat(", model.kvHeads ", model.key_heads()) : "",
                   model.moe.any() ? absl::StrCat(model.moe.dense_layers > 0 ? absl::StrCat(", model.ffn ", model.ffn) : "",
                                                  " and model.seq ", model.seq, ", parallel.ep divide model.moe.experts ",
                                                  model.moe.experts, " and tp * cp * dp, parallel.tp")
                                   : absl::StrCat(" and model.ffn ", model.ffn, " and"),
                   " be at most ", cluster.least_devices_per_node(),
                   " (devices of a node), parallel.pp be at most model.layers ", model.layers,
                   even_batches ? ", parallel.dp * train.microBatch divide train.globalBatch "
                                : ", parallel.dp be at most train.globalBatch ",
                   spec.train.global_batch,
                   even_batches && spec.parallel.virtual_stages > 1
                       ? ", the microbatches of the interleaved schedule be a multiple of parallel.pp"
                       : "",
                   pinned.empty() ? "" : absl::StrCat(" (the job fixes ", absl::StrJoin(pinned, ", "), ")"),
                   WhatWouldDo(spec, cluster, target, even_batches)));
}

}  // namespace lynx

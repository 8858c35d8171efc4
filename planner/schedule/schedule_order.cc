// Validates schedules and computes their SlotOrder. See schedule_order.h.
#include "planner/schedule/schedule_order.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace lynx {
namespace {

class SlotOrderer {
 public:
  explicit SlotOrderer(const Schedule& schedule) : schedule_(schedule) {}

  absl::StatusOr<SlotOrder> Order() {
    LYNX_RETURN_IF_ERROR(CheckScheduleShape(schedule_.kind, schedule_.shape, schedule_.microbatches, schedule_.splits_weight));
    if (schedule_.ranks.size() != static_cast<size_t>(schedule_.shape.ranks)) {
      return absl::InvalidArgumentError(absl::StrCat("the schedule has slots for ", schedule_.ranks.size(),
                                                     " ranks; its pipeline has ", schedule_.shape.ranks));
    }
    Prepare();
    for (int32_t rank = 0; rank < schedule_.shape.ranks; ++rank) LYNX_RETURN_IF_ERROR(CheckRank(rank));
    LYNX_RETURN_IF_ERROR(CheckComplete());
    std::fill(table_.begin(), table_.end(), 0);
    RunRanks();
    if (order_.slots.size() != total_) return Deadlock();
    return std::move(order_);
  }

 private:
  // Properties of a stage. They are stored, because computing them again for every slot would need divisions.
  struct Neighbours {
    int32_t rank, pipe, next, previous;
  };

  size_t Index(Pass pass, int32_t stage, int32_t microbatch) const {
    return (static_cast<size_t>(pass) * stages_.size() + static_cast<size_t>(stage)) *
               static_cast<size_t>(schedule_.microbatches) +
           static_cast<size_t>(microbatch);
  }
  const std::vector<Slot>& SlotsOf(int32_t rank) const { return schedule_.ranks[static_cast<size_t>(rank)]; }
  const Neighbours& At(int32_t stage) const { return stages_[static_cast<size_t>(stage)]; }

  void Prepare() {
    const PipelineShape& shape = schedule_.shape;
    for (int32_t stage = 0; stage < shape.stages(); ++stage) {
      stages_.push_back({shape.RankOf(stage), shape.PipeOf(stage), shape.Next(stage), shape.Previous(stage)});
    }
    for (const std::vector<Slot>& slots : schedule_.ranks) total_ += slots.size();
    const size_t passes = schedule_.splits_weight ? 3 : 2;
    table_.assign(passes * stages_.size() * static_cast<size_t>(schedule_.microbatches), 0);
    order_ = {.shape = shape,
              .microbatches = schedule_.microbatches,
              .splits_weight = schedule_.splits_weight,
              .slots = {},
              .pipe_of_microbatch = {}};
    order_.pipe_of_microbatch.assign(static_cast<size_t>(schedule_.microbatches), -1);
  }

  absl::Status Error(int32_t rank, size_t slot, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ", slot ", slot + 1, " (", SlotText(SlotsOf(rank)[slot]), "): ", what));
  }

  // Checks the slots of a rank. Enters the number of each slot on its rank, counted from 1, into table_.
  absl::Status CheckRank(int32_t rank) {
    const std::vector<Slot>& slots = SlotsOf(rank);
    for (size_t i = 0; i < slots.size(); ++i) {
      const Slot& slot = slots[i];
      if (slot.stage < 0 || slot.stage >= static_cast<int32_t>(stages_.size())) {
        return Error(rank, i, absl::StrCat("the stages are 0 to ", stages_.size() - 1));
      }
      if (slot.microbatch < 0 || slot.microbatch >= schedule_.microbatches) {
        return Error(rank, i, absl::StrCat("the microbatches are 0 to ", schedule_.microbatches - 1));
      }
      if (slot.pass == Pass::kWeight && !schedule_.splits_weight) {
        return Error(rank, i, "in this schedule B includes the weight gradient; one with W needs weight=split");
      }
      const Neighbours& stage = At(slot.stage);
      if (stage.rank != rank) {
        return Error(rank, i, absl::StrCat("stage ", slot.stage, " is on rank ", stage.rank));
      }
      int32_t& number = table_[Index(slot.pass, slot.stage, slot.microbatch)];
      if (number != 0) return Error(rank, i, absl::StrCat("stands here twice, first as slot ", number));
      number = static_cast<int32_t>(i) + 1;
      if (slot.pass != Pass::kForward) {
        const Pass before = slot.pass == Pass::kBackward ? Pass::kForward : Pass::kBackward;
        if (table_[Index(before, slot.stage, slot.microbatch)] == 0) {
          return Error(rank, i, absl::StrCat("no ", SlotText({before, slot.stage, slot.microbatch}), " stands before it"));
        }
      }
      int32_t& pipe = order_.pipe_of_microbatch[static_cast<size_t>(slot.microbatch)];
      if (pipe >= 0 && pipe != stage.pipe) {
        return Error(rank, i,
                     absl::StrCat("microbatch ", slot.microbatch, " goes through the other pipe: stages ",
                                  pipe * schedule_.shape.pieces(), " to ", (pipe + 1) * schedule_.shape.pieces() - 1));
      }
      pipe = stage.pipe;
    }
    return absl::OkStatus();
  }

  absl::Status CheckComplete() const {
    const int32_t pieces = schedule_.shape.pieces();
    const size_t passes = schedule_.splits_weight ? 3 : 2;
    // No slot is a duplicate or in a wrong place, so it is enough to compare the number of slots.
    if (total_ == passes * static_cast<size_t>(pieces) * static_cast<size_t>(schedule_.microbatches)) {
      return absl::OkStatus();
    }
    for (int32_t microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) {
      const int32_t pipe = order_.pipe_of_microbatch[static_cast<size_t>(microbatch)];
      if (pipe < 0) return absl::InvalidArgumentError(absl::StrCat("microbatch ", microbatch, " has no slot"));
      for (int32_t stage = pipe * pieces; stage < (pipe + 1) * pieces; ++stage) {
        for (size_t pass = 0; pass < passes; ++pass) {
          const Slot slot{static_cast<Pass>(pass), stage, microbatch};
          if (table_[Index(slot.pass, stage, microbatch)] != 0) continue;
          return absl::InvalidArgumentError(absl::StrCat("rank ", At(stage).rank, ": ", SlotText(slot), " is missing"));
        }
      }
    }
    return absl::OkStatus();
  }

  // Needed: the stage whose slot of the same pass and microbatch must be done before `slot`. WaitingFor: the stage whose slot
  // of the same pass and microbatch needs `slot`.
  int32_t Needed(const Slot& slot) const {
    if (slot.pass == Pass::kWeight) return kNoStage;
    return slot.pass == Pass::kForward ? At(slot.stage).previous : At(slot.stage).next;
  }
  int32_t WaitingFor(const Slot& slot) const {
    if (slot.pass == Pass::kWeight) return kNoStage;
    return slot.pass == Pass::kForward ? At(slot.stage).next : At(slot.stage).previous;
  }

  // Runs the slots. Each rank runs until its next slot needs a slot that has not run. When another rank runs that slot, the
  // first rank can run again. From this call on, table_ holds positions in the order.
  void RunRanks() {
    const size_t ranks = schedule_.ranks.size();
    next_.assign(ranks, 0);
    std::vector<bool> blocked(ranks, false);
    std::vector<int32_t> runnable;
    for (size_t rank = ranks; rank-- > 0;) runnable.push_back(static_cast<int32_t>(rank));
    order_.slots.reserve(total_);
    while (!runnable.empty()) {
      const int32_t rank = runnable.back();
      runnable.pop_back();
      const std::vector<Slot>& slots = SlotsOf(rank);
      size_t& next = next_[static_cast<size_t>(rank)];
      for (; next < slots.size(); ++next) {
        const Slot& slot = slots[next];
        int32_t needs = 0;
        if (const int32_t stage = Needed(slot); stage != kNoStage) {
          needs = table_[Index(slot.pass, stage, slot.microbatch)];
          if (needs == 0) {
            blocked[static_cast<size_t>(rank)] = true;
            break;
          }
        }
        order_.slots.push_back(
            {.rank = rank,
             .pass_and_stage = static_cast<int32_t>(slot.pass) * static_cast<int32_t>(stages_.size()) + slot.stage,
             .needs = needs});
        table_[Index(slot.pass, slot.stage, slot.microbatch)] = static_cast<int32_t>(order_.slots.size());
        const int32_t waiting = WaitingFor(slot);
        if (waiting == kNoStage) continue;
        const int32_t waiter = At(waiting).rank;
        if (!blocked[static_cast<size_t>(waiter)]) continue;
        const Slot woken{slot.pass, waiting, slot.microbatch};
        if (SlotsOf(waiter)[next_[static_cast<size_t>(waiter)]] != woken) continue;
        blocked[static_cast<size_t>(waiter)] = false;
        runnable.push_back(waiter);
      }
    }
  }

  // Every unfinished rank waits for an unfinished rank. Following these waits from any rank leads into a cycle. The error names
  // this cycle.
  absl::Status Deadlock() const {
    const auto waits_for = [&](int32_t rank) {
      const Slot& slot = SlotsOf(rank)[next_[static_cast<size_t>(rank)]];
      return Slot{slot.pass, Needed(slot), slot.microbatch};
    };
    int32_t rank = 0;
    while (next_[static_cast<size_t>(rank)] == SlotsOf(rank).size()) ++rank;
    for (size_t i = 0; i < schedule_.ranks.size(); ++i) rank = At(waits_for(rank).stage).rank;
    constexpr size_t kMost = 8;
    std::vector<std::string> circle;
    const int32_t first = rank;
    do {
      const Slot needed = waits_for(rank);
      const size_t at = next_[static_cast<size_t>(rank)];
      circle.push_back(absl::StrCat("rank ", rank, " waits at slot ", at + 1, " (", SlotText(SlotsOf(rank)[at]), ") for ",
                                    SlotText(needed), " of rank ", At(needed.stage).rank));
      rank = At(needed.stage).rank;
    } while (rank != first && circle.size() < kMost);
    if (rank != first) circle.push_back("and so on");
    return absl::InvalidArgumentError(absl::StrCat("deadlock: ", absl::StrJoin(circle, "; ")));
  }

  const Schedule& schedule_;
  std::vector<Neighbours> stages_;
  size_t total_ = 0;
  // The indices are pass, stage and microbatch. While ranks are checked, an entry is the number of the slot on its rank.
  // Afterwards it is the slot's position in the order; 0: the slot is not in the order yet.
  std::vector<int32_t> table_;
  std::vector<size_t> next_;  // for each rank
  SlotOrder order_;
};

}  // namespace

absl::StatusOr<SlotOrder> OrderSlots(const Schedule& schedule) { return SlotOrderer(schedule).Order(); }

absl::Status ValidateSchedule(const Schedule& schedule) { return OrderSlots(schedule).status(); }

}  // namespace lynx

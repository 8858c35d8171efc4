// Parses and prints schedules as text. See schedule.h.
#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "planner/schedule/schedule.h"

namespace lynx {
namespace {

constexpr std::string_view kLetters = "FBW";  // the index is the Pass

// Splits one line into words and counts them from 1. Comments are skipped.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line.substr(0, line.find('#'))) { SkipSpace(); }

  bool empty() const { return rest_.empty(); }
  int number() const { return number_; }  // number of the word that Next returned last
  std::string_view Next() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(kSpace));
    rest_.remove_prefix(word.size());
    SkipSpace();
    ++number_;
    return word;
  }

 private:
  static constexpr std::string_view kSpace = " \t\r";

  void SkipSpace() { rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(kSpace))); }

  std::string_view rest_;
  int number_ = 0;
};

// Takes a number from the front of `text`. The number has no sign, no leading zero and at most nine digits, so each value has
// one form. If there is no number, returns false and takes nothing.
bool TakeNumber(std::string_view& text, int32_t& number) {
  size_t digits = 0;
  int32_t value = 0;
  while (digits < text.size() && digits < 9 && text[digits] >= '0' && text[digits] <= '9') {
    value = value * 10 + (text[digits++] - '0');
  }
  if (digits == 0 || (digits > 1 && text[0] == '0')) return false;
  text.remove_prefix(digits);
  number = value;
  return true;
}

absl::StatusOr<Slot> ParseSlot(std::string_view word) {
  std::string_view rest = word;
  Slot slot;
  const auto error = [&](std::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", std::string(expected), " at character ",
                                                   word.size() - rest.size() + 1, " of a slot (as 0F3)"));
  };
  if (!TakeNumber(rest, slot.stage)) return error("a stage number");
  const size_t letter = rest.empty() ? std::string_view::npos : kLetters.find(rest.front());
  if (letter == std::string_view::npos) return error("F, B or W");
  slot.pass = static_cast<Pass>(letter);
  rest.remove_prefix(1);
  if (!TakeNumber(rest, slot.microbatch)) return error("a microbatch number");
  if (!rest.empty()) return error("the end");
  return slot;
}

struct Header {
  ScheduleKind kind = ScheduleKind::kCustom;
  int32_t ranks = 0, chunks = 0, microbatches = 0;  // 0: the text does not state it
  bool has_placement = false, has_weight = false;
  StagePlacement placement = StagePlacement::kLooping;
  bool splits_weight = false;
};

absl::Status ReadNumberField(std::string_view key, std::string_view value, int32_t& field) {
  if (field != 0) return absl::InvalidArgumentError(absl::StrCat(std::string(key), " is said twice"));
  if (!TakeNumber(value, field) || !value.empty() || field == 0) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(key), " must be a number from 1 to 999999999"));
  }
  return absl::OkStatus();
}

absl::Status ReadField(std::string_view word, Header& header) {
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  if (key == "ranks") return ReadNumberField(key, value, header.ranks);
  if (key == "chunks") return ReadNumberField(key, value, header.chunks);
  if (key == "microbatches") return ReadNumberField(key, value, header.microbatches);
  if (key == "placement") {
    if (header.has_placement) return absl::InvalidArgumentError("placement is said twice");
    header.has_placement = true;
    if (ParseEnum(value, header.placement)) return absl::OkStatus();
    return absl::InvalidArgumentError("placement must be looping, v or bidirectional");
  }
  if (key == "weight") {
    if (header.has_weight) return absl::InvalidArgumentError("weight is said twice");
    header.has_weight = true;
    header.splits_weight = value == "split";
    if (value == "split" || value == "fused") return absl::OkStatus();
    return absl::InvalidArgumentError("weight must be fused or split");
  }
  return absl::InvalidArgumentError("expected ranks=, chunks=, microbatches=, placement= or weight=");
}

absl::Status AtWord(const absl::Status& status, const Words& words, std::string_view word) {
  return Annotate(status, absl::StrCat("word ", words.number(), " \"", std::string(word), "\""));
}

// Returns "gpipe, 1f1b, ..., custom".
std::string KindNames() {
  std::string names = EnumName(ScheduleKind::kGpipe);
  for (int kind = 2; kind < kScheduleKindCount; ++kind) {
    absl::StrAppend(&names, ", ", EnumName(static_cast<ScheduleKind>(kind)));
  }
  return names;
}

// Parses the first line, and returns the schedule without slots.
absl::StatusOr<Schedule> ReadHeader(Words words) {
  const std::string_view name = words.Next();
  Header header;
  if (!ParseEnum(std::string(name), header.kind) || header.kind == ScheduleKind::kAuto) {
    return AtWord(absl::InvalidArgumentError(absl::StrCat("expected a schedule's kind: ", KindNames())), words, name);
  }
  while (!words.empty()) {
    const std::string_view word = words.Next();
    if (absl::Status status = ReadField(word, header); !status.ok()) return AtWord(status, words, word);
  }
  if (header.ranks == 0) return absl::InvalidArgumentError("ranks= is missing");
  if (header.microbatches == 0) return absl::InvalidArgumentError("microbatches= is missing");
  const ScheduleKindInfo& info = InfoOf(header.kind);
  if (header.chunks == 0 && header.kind == ScheduleKind::kInterleaved) {
    return absl::InvalidArgumentError("chunks= is missing: interleaved may have 2 or more");
  }
  Schedule schedule{.kind = header.kind,
                    .shape = {.placement = header.has_placement ? header.placement : info.placement,
                              .ranks = header.ranks,
                              .chunks = header.chunks == 0 ? info.min_chunks : header.chunks},
                    .microbatches = header.microbatches,
                    .splits_weight = header.has_weight ? header.splits_weight : info.splits_weight,
                    .ranks = {}};
  if (header.kind == ScheduleKind::kCustom && header.chunks == 0 && header.placement != StagePlacement::kLooping) {
    schedule.shape.chunks = 2;
  }
  LYNX_RETURN_IF_ERROR(CheckScheduleShape(schedule.kind, schedule.shape, schedule.microbatches, schedule.splits_weight));
  return schedule;
}

absl::Status ReadRank(Words words, Schedule& schedule) {
  const size_t ranks = static_cast<size_t>(schedule.shape.ranks);
  if (schedule.ranks.size() == ranks) {
    return absl::InvalidArgumentError(absl::StrCat("a line too many: the schedule has ", ranks, " ranks, one a line"));
  }
  std::vector<Slot>& slots = schedule.ranks.emplace_back();
  while (!words.empty()) {
    const std::string_view word = words.Next();
    const absl::StatusOr<Slot> slot = ParseSlot(word);
    if (!slot.ok()) return AtWord(slot.status(), words, word);
    slots.push_back(*slot);
  }
  return absl::OkStatus();
}

void AppendSlot(std::string& text, const Slot& slot) {
  absl::StrAppend(&text, slot.stage);
  text += kLetters[static_cast<size_t>(slot.pass)];
  absl::StrAppend(&text, slot.microbatch);
}

}  // namespace

std::string SlotText(const Slot& slot) {
  std::string text;
  AppendSlot(text, slot);
  return text;
}

std::string ScheduleText(const Schedule& schedule) {
  std::string text = absl::StrCat(EnumName(schedule.kind), " ranks=", schedule.shape.ranks, " chunks=", schedule.shape.chunks,
                                  " microbatches=", schedule.microbatches);
  if (schedule.kind == ScheduleKind::kCustom) {
    absl::StrAppend(&text, " placement=", EnumName(schedule.shape.placement),
                    " weight=", schedule.splits_weight ? "split" : "fused");
  }
  text += '\n';
  for (const std::vector<Slot>& slots : schedule.ranks) {
    bool first = true;
    for (const Slot& slot : slots) {
      if (!first) text += ' ';
      first = false;
      AppendSlot(text, slot);
    }
    text += '\n';
  }
  return text;
}

absl::StatusOr<Schedule> ParseSchedule(std::string_view text) {
  Schedule schedule;
  bool has_header = false;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const Words words(line);
    if (words.empty()) continue;
    absl::Status status;
    if (has_header) {
      status = ReadRank(words, schedule);
    } else {
      absl::StatusOr<Schedule> header = ReadHeader(words);
      status = header.status();
      if (header.ok()) schedule = *std::move(header);
      has_header = true;
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("schedule line ", line_number));
  }
  if (!has_header) {
    return absl::InvalidArgumentError(
        "the schedule is empty: its first line says the kind, as \"1f1b ranks=2 microbatches=4\"");
  }
  if (schedule.ranks.size() != static_cast<size_t>(schedule.shape.ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schedule has ", schedule.ranks.size(), " lines of slots for ", schedule.shape.ranks, " ranks"));
  }
  return schedule;
}

}  // namespace lynx

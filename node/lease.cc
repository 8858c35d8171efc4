#include "node/lease.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lynx {
namespace {

// An answer of a witness counts for this long.
constexpr Nanos kAnswerHolds{3'000'000'000};
// A node counts as cut off only after ServerAnswersOthers has been true for this long. When connections come back, the server
// may hear from this node a little later than from other nodes.
constexpr Nanos kSuspicionLasts{2'000'000'000};
constexpr size_t kMaxUnanswered = 1024;
constexpr size_t kMaxWitnesses = 8;

Nanos Half(Nanos time) { return Nanos(time.value / 2); }

}  // namespace

std::string LeaseTermsText(const LeaseTerms& terms) {
  return absl::StrCat(terms.isolated.value, " ", terms.cut_off.value, terms.witnesses.empty() ? "" : " ",
                      absl::StrJoin(terms.witnesses, " "), "\n");
}

absl::StatusOr<LeaseTerms> ParseLeaseTerms(const std::string& text) {
  std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  LeaseTerms terms;
  if (words.size() < 2 || !absl::SimpleAtoi(words[0], &terms.isolated.value) ||
      !absl::SimpleAtoi(words[1], &terms.cut_off.value) || terms.isolated < Nanos(0) || terms.cut_off < Nanos(0)) {
    return absl::InvalidArgumentError("is not \"ISOLATED_NS CUT_OFF_NS HOST:PORT ...\"");
  }
  terms.witnesses.assign(words.begin() + 2, words.end());
  return terms;
}

Lease::Lease(Nanos now, Nanos deadline, LeaseTerms terms) : began_(now), terms_(std::move(terms)), deadline_(deadline) {}

void Lease::Sent(int64_t report, Nanos now) {
  sent_.emplace_back(report, now);
  if (sent_.size() > kMaxUnanswered) sent_.pop_front();
}

void Lease::Renewed(const Renewal& renewal, Nanos now) {
  std::optional<Nanos> sent_at;
  while (!sent_.empty() && sent_.front().first <= renewal.report) {
    if (sent_.front().first == renewal.report) sent_at = sent_.front().second;
    sent_.pop_front();
  }
  if (!sent_at.has_value()) return;  // the renewal is for a report that this process did not send
  renewed_ = renewal.report;
  own_ = Witnessed{.renewed_at = *sent_at, .server_began = now - renewal.server_up};
  std::vector<std::string> witnesses = renewal.witnesses;
  for (const std::string& before : terms_.witnesses) {
    const bool known = std::find(witnesses.begin(), witnesses.end(), before) != witnesses.end();
    if (renewal.more_witnesses && !known && witnesses.size() < kMaxWitnesses) witnesses.push_back(before);
  }
  terms_ = {renewal.isolated, renewal.cut_off, std::move(witnesses)};
  std::erase_if(answers_, [&](const auto& entry) {
    return std::find(terms_.witnesses.begin(), terms_.witnesses.end(), entry.first) == terms_.witnesses.end();
  });
  suspected_ = std::nullopt;
  deadline_ = terms_.isolated == Nanos(0) || terms_.witnesses.empty() ? kForever : *sent_at + terms_.isolated;
}

bool Lease::AsksWitnesses(Nanos now) const {
  if (deadline_ == kForever || terms_.witnesses.empty()) return false;
  return !own_.has_value() || now - own_->renewed_at >= Half(terms_.cut_off);
}

void Lease::Answered(const std::string& witness, std::optional<Witnessed> answer, Nanos now) {
  const std::vector<std::string>& known = terms_.witnesses;
  if (std::find(known.begin(), known.end(), witness) == known.end()) return;
  answers_[witness] = {.at = now, .witnessed = answer};
}

// True if the server has not answered us for `cut_off`, but has answered a report that a witness sent at least half of
// `cut_off` after our last answered report. If the server were only slow, it would have answered our next report first. If
// another server leads since, or the server has restarted, both times count from kNewServerGrace after it began.
bool Lease::ServerAnswersOthers(Nanos now) const {
  return std::any_of(answers_.begin(), answers_.end(), [&](const auto& entry) {
    const Answer& answer = entry.second;
    if (!answer.witnessed.has_value() || now - answer.at > kAnswerHolds) return false;
    const Nanos heard = own_.has_value() ? own_->renewed_at : began_;
    const Nanos server_began = answer.witnessed->server_began;
    const Nanos since = server_began > heard ? server_began + kNewServerGrace : heard;
    return now - since >= terms_.cut_off && answer.witnessed->renewed_at - since >= Half(terms_.cut_off);
  });
}

// True if most witnesses have answered recently, and the server has answered none of them within `cut_off`.
bool Lease::ServerIsAway(Nanos now) const {
  size_t without = 0;
  for (const auto& [witness, answer] : answers_) {
    if (now - answer.at > kAnswerHolds) continue;
    if (answer.witnessed.has_value() && now - answer.witnessed->renewed_at < terms_.cut_off) return false;
    ++without;
  }
  return 2 * without > terms_.witnesses.size();
}

Nanos Lease::Deadline(Nanos now) {
  if (deadline_ == kForever || !AsksWitnesses(now)) return deadline_;
  if (now >= deadline_) {  // the ranks have ended, or are about to end
    if (reason_.empty()) reason_ = "this node has heard neither of the server nor of most other nodes that it asked";
    return deadline_;
  }
  if (ServerIsAway(now)) deadline_ = std::max(deadline_, now + terms_.isolated);
  if (terms_.cut_off == Nanos(0) || !ServerAnswersOthers(now)) {
    suspected_ = std::nullopt;
    return deadline_;
  }
  if (!suspected_.has_value()) suspected_ = now;
  if (now - *suspected_ >= kSuspicionLasts) {
    deadline_ = now;
    reason_ = "this node is cut off from the server, which answers others";
  }
  return deadline_;
}

}  // namespace lynx

#include "server/loop/effect_list.h"

#include "absl/strings/str_cat.h"

namespace lynx::server {
namespace {

// Key of the effect. If two effects with the same key set the state of the same thing, the newer one replaces the older one;
// notices about one job are joined. Empty: the effect replaces no other effect.
std::string KeyOf(const Effect& effect) {
  if (const auto* agent = std::get_if<SendAgent>(&effect)) return absl::StrCat("agent ", agent->stream);
  if (const auto* worker = std::get_if<SendWorker>(&effect)) return absl::StrCat("worker ", worker->stream);
  if (const auto* update = std::get_if<UpdateJob>(&effect)) return absl::StrCat("job ", update->job.id.value);
  if (const auto* notice = std::get_if<NotifyWatchers>(&effect)) return absl::StrCat("notice ", notice->job.value);
  return "";
}

}  // namespace

void EffectList::Append(Effect effect) {
  const std::string key = KeyOf(effect);
  if (!key.empty()) {
    const auto [at, is_first] = newest_.try_emplace(key, effects_.size());
    if (!is_first) {
      if (auto* notice = std::get_if<NotifyWatchers>(&effect)) {
        auto& same = std::get<NotifyWatchers>(effects_[at->second]);
        same.events.insert(same.events.end(), notice->events.begin(), notice->events.end());
        return;
      }
      gone_[at->second] = true;
      ++dropped_;
      at->second = effects_.size();
    }
  }
  effects_.push_back(std::move(effect));
  gone_.push_back(false);
}

void EffectList::clear() {
  effects_.clear();
  gone_.clear();
  newest_.clear();
  dropped_ = 0;
}

void EffectList::Compact() {
  if (dropped_ == 0) return;
  size_t kept = 0;
  for (size_t i = 0; i < effects_.size(); ++i) {
    if (gone_[i]) continue;
    if (kept != i) effects_[kept] = std::move(effects_[i]);
    if (const std::string key = KeyOf(effects_[kept]); !key.empty()) newest_[key] = kept;
    ++kept;
  }
  effects_.erase(effects_.begin() + static_cast<std::ptrdiff_t>(kept), effects_.end());
  gone_.assign(kept, false);
  dropped_ = 0;
}

const std::vector<Effect>& EffectList::Get() {
  Compact();
  return effects_;
}

std::vector<Effect> EffectList::Take() {
  Compact();
  std::vector<Effect> all = std::move(effects_);
  clear();
  return all;
}

}  // namespace lynx::server

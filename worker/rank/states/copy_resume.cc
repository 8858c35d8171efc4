#include "worker/rank/states/copy_resume.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/copies/copy_files.h"

namespace lynx::worker {
namespace {

// The largest size of a node's list. It has room for some hundreds of shards.
constexpr size_t kMaxListBytes = size_t{512} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<CopyResume>> CopyResume::Begin(const RankConfig& config, PeerCopies& copies,
                                                              const RankGroup& group, ReportFile& reports) {
  std::unique_ptr<CopyResume> resume(new CopyResume(config, copies, group, reports));
  std::string own;
  if (copies.leads()) {
    const NodeCopies here = copies.store().List();
    for (const std::string& reason : here.damaged) resume->Tell(reason);
    own = NodeCopiesText(here, kMaxListBytes);
  }
  LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherTexts(own, group));
  for (int32_t node = 0; node < copies.node_count(); ++node) {
    const int32_t leader = RanksOfNode(copies.nodes(), node).front();
    LYNX_ASSIGN_OR_RETURN(NodeCopies listed, ParseNodeCopies(texts[static_cast<size_t>(leader)]));
    resume->nodes_.push_back(std::move(listed));
  }
  resume->Choose();
  return resume;
}

void CopyResume::Choose() {
  std::vector<std::string> incomplete;
  current_ = NewestWhole(nodes_, config_.generation, damaged_, &incomplete);
  if (seat_.rank != 0) return;
  for (const std::string& reason : incomplete) {
    std::fprintf(stderr, "copies in memory are passed over: %s\n", reason.c_str());
  }
}

void CopyResume::Tell(const std::string& reason) {
  std::fprintf(stderr, "copies in memory are passed over: %s\n", reason.c_str());
  reports_.Append(CopiesNotice{.reason = "passed over: " + reason});
}

absl::StatusOr<std::set<PlacedCopy>> CopyResume::Verify() {
  const std::vector<int32_t> here = copies_.RanksHere();
  const auto place = static_cast<size_t>(std::find(here.begin(), here.end(), seat_.rank) - here.begin());
  std::string own;  // damaged files, one per line
  size_t counted = 0;
  for (size_t i = 0; i < current_->files.size(); ++i) {
    if (current_->nodes[i] != copies_.node() || counted++ % here.size() != place) continue;
    const absl::Status whole = copies_.store().Verify({current_->identity, current_->files[i]});
    if (whole.ok()) continue;
    Tell(std::string(whole.message()));
    absl::StrAppend(&own, current_->files[i].file, "\n");
  }
  LYNX_ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherTexts(own, seat_));
  std::set<PlacedCopy> found;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    for (size_t at = 0, end; (end = texts[rank].find('\n', at)) != std::string::npos; at = end + 1) {
      found.insert(
          {copies_.nodes()[rank], {current_->identity.generation, current_->identity.step, texts[rank].substr(at, end - at)}});
    }
  }
  return found;
}

absl::StatusOr<bool> CopyResume::Load(const CheckpointIdentity& run, ModelState& state) {
  LYNX_ASSIGN_OR_RETURN(const std::set<PlacedCopy> damaged, Verify());
  if (!damaged.empty()) {
    damaged_.insert(damaged.begin(), damaged.end());
    Choose();
    return false;
  }
  CopyFiles files(*current_, copies_.store(), copies_.node(),
                  [this](int32_t node) -> CopyClient& { return copies_.ClientOfNode(node); });
  touched_ = true;
  const absl::Status own =
      LoadCopies(files.Summary(), run, config_.context, CoordinatesOf(config_.context.layout, seat_.rank).tp, state,
                 ReadShare{.index = 0, .of = 0}, files);
  LYNX_ASSIGN_OR_RETURN(const std::vector<absl::Status> loaded, GatherStatuses(own, seat_));
  const absl::Status failure = FirstFailure(loaded);
  if (failure.ok()) return true;
  if (absl::IsFailedPrecondition(failure)) return failure;
  // A load failed, but it is not known which shard is the cause. So all shards of this step are rejected.
  if (!own.ok()) Tell(std::string(own.message()));
  for (int32_t node = 0; node < copies_.node_count(); ++node) {
    for (const ShardRecord& file : current_->files) {
      damaged_.insert({node, {current_->identity.generation, current_->identity.step, file.file}});
    }
  }
  Choose();
  return false;
}

void CopyResume::MarkResumed(int64_t step) {
  if (!copies_.leads()) return;
  const absl::Status marked = copies_.store().MarkResumed({config_.generation, step});
  if (!marked.ok()) std::fprintf(stderr, "copies in memory: %s\n", std::string(marked.message()).c_str());
}

}  // namespace lynx::worker

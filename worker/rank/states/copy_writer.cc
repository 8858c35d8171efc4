#include "worker/rank/states/copy_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "common/digest.h"
#include "common/status.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/shard.h"

namespace lynx::worker {
namespace {

// The ranks make in-memory checkpoints as often as their cost allows. Training waits for them at most 1/kWaitShare of its time.
// The work that runs at the same time as training takes at most 1/kBesideShare of the time, because it may take cores and
// network from training.
constexpr int64_t kWaitShare = 20, kBesideShare = 10;
// The number of steps to wait after a failure.
constexpr int64_t kStepsAfterFailure = 20;
constexpr size_t kChunkBytes = size_t{1} << 20;

absl::StatusOr<std::string> DigestOf(int fd, int64_t bytes, const std::string& what) {
  Sha256 digest;
  std::vector<char> chunk(std::min<size_t>(kChunkBytes, static_cast<size_t>(bytes)));
  for (int64_t at = 0; at < bytes;) {
    const std::span<char> part(chunk.data(), std::min<size_t>(chunk.size(), static_cast<size_t>(bytes - at)));
    LYNX_RETURN_IF_ERROR(ReadAt(fd, at, part, what));
    digest.Update({part.data(), part.size()});
    at += static_cast<int64_t>(part.size());
  }
  return digest.FinishHex();
}

}  // namespace

CopyWriter::CopyWriter(const RankConfig& config, const CheckpointIdentity& run, PeerCopies* copies, ModelState& state,
                       ReportFile& reports, const Clock& clock)
    : config_(config), run_(run), copies_(copies),
      partner_(copies != nullptr && copies->partner() >= 0 ? &copies->Client(copies->partner()) : nullptr), state_(state),
      reports_(reports), clock_(clock) {}

CopyWriter::~CopyWriter() { EndThread(); }

void CopyWriter::EndThread() {
  if (!makes()) return;
  if (partner_ != nullptr) partner_->End();
  if (thread_.joinable()) thread_.join();
}

CopyKey CopyWriter::KeyOf(int64_t step) const { return {config_.generation, step, *copies_->own_shard()}; }

CopyVotes CopyWriter::Votes() const {
  if (!makes()) return {};
  CopyVotes votes{.idle = idle_.load(std::memory_order_acquire)};
  votes.whole = votes.idle && status_.ok();
  votes.wanted = !replaced_;
  if (config_.spec.checkpoint.copy_every_steps != kCopiesAuto || !votes.idle) return votes;
  const Nanos took(took_ns_.load(std::memory_order_acquire));
  votes.wanted = votes.wanted && clock_.Monotonic() >= began_ + std::max(waited_ * kWaitShare, took * kBesideShare);
  return votes;
}

void CopyWriter::AfterStep(int64_t steps_done, const CopyVotes& all) {
  if (!makes() || steps_done >= config_.spec.train.steps) return;
  if (pending_.has_value() && all.idle) Conclude(all);
  const int64_t every = config_.spec.checkpoint.copy_every_steps;
  if (every != kCopiesAuto && steps_done % every != 0) return;
  if (every == kCopiesAuto && all.idle && !all.wanted) return;
  if (!all.idle || !all.wanted || steps_done < not_before_step_) {
    ++skipped_;
    return;
  }
  Begin(steps_done);
}

// Ends the pending in-memory checkpoint. Called when every rank has finished its part of it.
void CopyWriter::Conclude(const CopyVotes& all) {
  if (thread_.joinable()) thread_.join();
  const int64_t steps = *std::exchange(pending_, std::nullopt);
  if (!status_.ok()) Failed(steps, std::exchange(status_, absl::OkStatus()));
  if (!all.whole) {
    spare_ = steps;
    ++skipped_;
    not_before_step_ = steps + kStepsAfterFailure;  // has the same value on every rank
    return;
  }
  spare_ = std::exchange(whole_, steps);
  // The first whole in-memory checkpoint of this generation replaces all those of older generations.
  if (std::exchange(first_whole_, false) && copies_->leads()) copies_->store().RemoveOlderThan(config_.generation);
}

void CopyWriter::Failed(int64_t steps_done, const absl::Status& failure) {
  replaced_ = replaced_ || absl::IsFailedPrecondition(failure);
  const std::string text = absl::StrCat("no copy of step ", steps_done, ": ", std::string(failure.message()));
  std::fprintf(stderr, "copies in memory: %s\n", text.c_str());
  if (!std::exchange(told_, true)) reports_.Append(CopiesNotice{.reason = absl::StrCat(text, "; training goes on")});
}

void CopyWriter::Begin(int64_t steps_done) {
  pending_ = steps_done;
  const std::optional<int64_t> replaced = std::exchange(spare_, std::nullopt);
  began_ = clock_.Monotonic();
  took_ns_ = 0;
  if (!copies_->own_shard().has_value()) return;
  absl::StatusOr<UniqueFd> file = WriteStates(steps_done, replaced);
  waited_ = clock_.Monotonic() - began_;
  status_ = file.status();
  if (!file.ok()) {
    copies_->store().Remove(KeyOf(steps_done));
    return;
  }
  idle_ = false;
  thread_ = StartCopyThread("lynx-copy", [this, steps_done, replaced, file = std::make_shared<UniqueFd>(*std::move(file))] {
    const Nanos begin = clock_.Monotonic();
    status_ = CompleteAndSend(steps_done, replaced, file->get());
    took_ns_ = (clock_.Monotonic() - begin).value;
    idle_.store(true, std::memory_order_release);
  });
}

absl::StatusOr<UniqueFd> CopyWriter::WriteStates(int64_t steps_done, std::optional<int64_t> replaced) {
  CheckpointIdentity identity = run_;
  identity.step = steps_done;
  const CopyKey key = KeyOf(steps_done);
  const std::string what = copies_->store().ShardPath(key);
  const int32_t tp_rank = CoordinatesOf(config_.context.layout, config_.rank).tp;
  const SafetensorsHeader header = ShardHeader(identity, config_.context, tp_rank, state_.updated(), /*weights_only=*/false);
  LYNX_ASSIGN_OR_RETURN(UniqueFd file,
                        copies_->store().BeginShard(key, replaced ? std::optional(KeyOf(*replaced)) : std::nullopt));
  LYNX_RETURN_IF_ERROR(WriteAll(file.get(), EncodeSafetensorsHeader(header), what));
  const TensorContent content = ContentOf(state_, state_.updated());
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(const std::span<const char> tensor, content(i));
    LYNX_RETURN_IF_ERROR(WriteAll(file.get(), tensor, what));
  }
  const off_t end = lseek(file.get(), 0, SEEK_CUR);
  if (end < 0 || ftruncate(file.get(), end) != 0) return absl::InternalError(absl::StrCat("cannot cut ", what));
  return file;
}

// Runs on the copy thread.
absl::Status CopyWriter::CompleteAndSend(int64_t steps_done, std::optional<int64_t> replaced, int fd) {
  const CopyKey key = KeyOf(steps_done);
  const std::string what = copies_->store().ShardPath(key);
  struct stat file {};
  if (fstat(fd, &file) != 0) return absl::InternalError(absl::StrCat("cannot look at ", what));
  CopyRecord record{run_, {key.file, Bytes(file.st_size), ""}};
  record.identity.step = steps_done;
  LYNX_ASSIGN_OR_RETURN(record.shard.sha256, DigestOf(fd, file.st_size, what));
  LYNX_RETURN_IF_ERROR(copies_->store().Complete(record));
  if (partner_ == nullptr) return absl::OkStatus();
  const absl::Status sent = partner_->Put(key, replaced.value_or(-1), fd, record.shard);
  return sent.ok() ? sent : Annotate(sent, absl::StrCat("to the node of rank ", copies_->partner()));
}

void CopyWriter::Drop() {
  if (!makes()) return;
  EndThread();
  copies_->StopServing();
  std::vector<std::string> files = copies_->taken();
  if (copies_->own_shard().has_value()) files.push_back(*copies_->own_shard());
  for (const std::optional<int64_t>& step : {whole_, spare_, pending_}) {
    for (const std::string& file : files) {
      if (step.has_value()) copies_->store().Remove({config_.generation, *step, file});
    }
  }
  if (copies_->leads()) copies_->store().RemoveOlderThan(config_.generation);
}

}  // namespace lynx::worker

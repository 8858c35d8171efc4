#include "worker/copies/copy_client.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

}  // namespace

absl::Status CopyClient::Connect() {
  if (link_ != nullptr) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(UniqueFd fd, ConnectForCopies(address_, pacing_bytes_per_second_));
  {
    std::lock_guard lock(mutex_);
    if (ended_) return absl::UnavailableError("the rank ends");
    link_ = std::make_shared<CopyLink>(std::move(fd));
  }
  const absl::Status opened = link_->Open(ends_);
  return opened.ok() ? opened : Drop(opened);
}

// Drops the connection. Call it when the connection is finished, or when it failed and it is unknown which bytes are still on
// their way.
absl::Status CopyClient::Drop(const absl::Status& failure) {
  std::lock_guard lock(mutex_);
  link_.reset();
  return failure.ok() ? failure : Annotate(failure, PeerAddressText(address_));
}

void CopyClient::End() {
  std::lock_guard lock(mutex_);
  ended_ = true;
  if (link_ != nullptr) link_->End();
}

absl::Status CopyClient::PutConnected(const CopyRequest& request, int fd, const std::string& sha256) {
  LYNX_RETURN_IF_ERROR(link_->Send(EncodeCopyRequest(request)));
  std::vector<char> chunk(std::min<size_t>(kChunkBytes, static_cast<size_t>(request.bytes)));
  for (int64_t at = 0; at < request.bytes;) {
    const std::span<char> part(chunk.data(), std::min<size_t>(chunk.size(), static_cast<size_t>(request.bytes - at)));
    LYNX_RETURN_IF_ERROR(ReadAt(fd, at, part, request.key.file));
    LYNX_RETURN_IF_ERROR(link_->Send(part));
    at += static_cast<int64_t>(part.size());
  }
  return link_->Send(sha256);
}

absl::Status CopyClient::Put(const CopyKey& key, int64_t replaced_step, int fd, const ShardRecord& record) {
  LYNX_RETURN_IF_ERROR(Connect());
  const CopyRequest request{
      .kind = CopyRequestKind::kPut, .key = key, .replaced_step = replaced_step, .bytes = record.bytes.value};
  absl::Status status = PutConnected(request, fd, record.sha256);
  if (status.ok()) status = link_->ReceiveReply();
  return Drop(status);
}

absl::Status CopyClient::GetConnected(const CopyRequest& request, std::span<char> out) {
  LYNX_RETURN_IF_ERROR(Connect());
  LYNX_RETURN_IF_ERROR(link_->Send(EncodeCopyRequest(request)));
  LYNX_RETURN_IF_ERROR(link_->ReceiveReply());
  return link_->Receive(out);
}

absl::Status CopyClient::Get(const CopyKey& key, int64_t offset, std::span<char> out) {
  while (!out.empty()) {
    const std::span<char> part = out.first(std::min<size_t>(out.size(), kMaxBytesOfGet));
    const CopyRequest request{
        .kind = CopyRequestKind::kGet, .key = key, .offset = offset, .bytes = static_cast<int64_t>(part.size())};
    const bool used = link_ != nullptr;
    absl::Status status = GetConnected(request, part);
    if (absl::IsUnavailable(status)) status = Drop(status);
    if (absl::IsUnavailable(status) && used) status = GetConnected(request, part);
    if (!status.ok()) return absl::IsUnavailable(status) ? Drop(status) : status;
    offset += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
  return absl::OkStatus();
}

}  // namespace lynx::worker

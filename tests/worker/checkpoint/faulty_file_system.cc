#include "tests/worker/checkpoint/faulty_file_system.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx::worker {
namespace {

std::vector<std::string> PartsOf(const std::string& path) { return absl::StrSplit(path, '/', absl::SkipEmpty()); }

}  // namespace

struct FaultyFileSystem::Node {
  bool folder = false;
  std::string content, durable_content;
  std::map<std::string, NodePtr> entries, durable_entries;

  void Crash(Unsynced unsynced) {
    if (unsynced == Unsynced::kLost) {
      content = durable_content;
      entries = durable_entries;
    } else {
      durable_content = content;
      durable_entries = entries;
    }
    for (auto& [name, node] : entries) node->Crash(unsynced);
  }
};

class FaultyFileSystem::OpenWritableFile : public WritableFile {
 public:
  OpenWritableFile(FaultyFileSystem& files, NodePtr node, std::string path)
      : files_(files), node_(std::move(node)), path_(std::move(path)) {}
  absl::Status Append(std::string_view bytes) override {
    if (absl::Status status = files_.Begin("append to " + path_); !status.ok()) {
      if (files_.fault_ == Fault::kStop) node_->content += bytes.substr(0, bytes.size() / 2);
      return status;
    }
    files_.written_bytes_ += static_cast<int64_t>(bytes.size());
    if (files_.written_bytes_ > files_.capacity_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot write ", path_, ": no space left"));
    }
    node_->content += bytes;
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    LYNX_RETURN_IF_ERROR(files_.Begin("sync " + path_));
    if (!files_.damage_.empty() && path_.ends_with("/" + files_.damage_)) {
      node_->content.back() ^= 1;
      files_.damage_.clear();
    }
    node_->durable_content = node_->content;
    return absl::OkStatus();
  }

 private:
  FaultyFileSystem& files_;
  NodePtr node_;
  std::string path_;
};

class FaultyFileSystem::OpenReadableFile : public ReadableFile {
 public:
  OpenReadableFile(FaultyFileSystem& files, NodePtr node, std::string path)
      : files_(files), node_(std::move(node)), path_(std::move(path)) {}
  Bytes size() const override { return Bytes(static_cast<int64_t>(node_->content.size())); }
  absl::Status Read(std::span<char> out) override {
    LYNX_RETURN_IF_ERROR(files_.Begin("read " + path_));
    if (out.size() > node_->content.size() - at_) return absl::DataLossError(path_ + " is cut short");
    if (!out.empty()) std::memcpy(out.data(), node_->content.data() + at_, out.size());
    at_ += out.size();
    files_.read_bytes_ += static_cast<int64_t>(out.size());
    return absl::OkStatus();
  }
  absl::Status Skip(int64_t bytes) override {
    LYNX_RETURN_IF_ERROR(files_.Begin("seek in " + path_));
    if (static_cast<size_t>(bytes) > node_->content.size() - at_) return absl::DataLossError(path_ + " is cut short");
    at_ += static_cast<size_t>(bytes);
    return absl::OkStatus();
  }

 private:
  FaultyFileSystem& files_;
  NodePtr node_;
  std::string path_;
  size_t at_ = 0;
};

FaultyFileSystem::FaultyFileSystem() : root_(std::make_shared<Node>()) { root_->folder = true; }
FaultyFileSystem::~FaultyFileSystem() = default;

void FaultyFileSystem::FailAt(int call, Fault fault) {
  calls_ = 0;
  fail_at_ = call;
  fault_ = fault;
}

void FaultyFileSystem::Crash(Unsynced unsynced) {
  root_->Crash(unsynced);
  Heal();
}

std::string& FaultyFileSystem::Content(const std::string& path) {
  const NodePtr node = Find(path);
  LYNX_CHECK(node != nullptr && !node->folder);
  return node->content;
}

absl::Status FaultyFileSystem::Begin(const std::string& what) {
  ++calls_;
  const bool fails = fail_at_ > 0 && (calls_ == fail_at_ || (calls_ > fail_at_ && fault_ == Fault::kStop));
  if (!fails) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("injected fault at call ", calls_, ": ", what));
}

FaultyFileSystem::NodePtr FaultyFileSystem::Find(const std::string& path) const {
  NodePtr node = root_;
  for (const std::string& part : PartsOf(path)) {
    const auto at = node->entries.find(part);
    if (at == node->entries.end()) return nullptr;
    node = at->second;
  }
  return node;
}

std::pair<FaultyFileSystem::NodePtr, std::string> FaultyFileSystem::FindParent(const std::string& path) const {
  const size_t slash = path.rfind('/');
  LYNX_CHECK(slash != std::string::npos);
  NodePtr parent = Find(path.substr(0, slash));
  if (parent != nullptr && !parent->folder) parent = nullptr;
  return {parent, path.substr(slash + 1)};
}

absl::Status FaultyFileSystem::CreateFolders(const std::string& path) {
  LYNX_RETURN_IF_ERROR(Begin("create folder " + path));
  NodePtr node = root_;
  for (const std::string& part : PartsOf(path)) {
    NodePtr& child = node->entries[part];
    if (child == nullptr) {
      child = std::make_shared<Node>();
      child->folder = true;
    }
    node->durable_entries[part] = child;
    node = child;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyFileSystem::CreateFile(const std::string& path) {
  LYNX_RETURN_IF_ERROR(Begin("create " + path));
  const auto [parent, name] = FindParent(path);
  if (parent == nullptr) return absl::NotFoundError("no folder for " + path);
  NodePtr& node = parent->entries[name];
  if (node == nullptr) node = std::make_shared<Node>();
  node->content.clear();
  return std::make_unique<OpenWritableFile>(*this, node, path);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> FaultyFileSystem::OpenFile(const std::string& path) {
  LYNX_RETURN_IF_ERROR(Begin("open " + path));
  const NodePtr node = Find(path);
  if (node == nullptr || node->folder) return absl::NotFoundError("no file " + path);
  return std::make_unique<OpenReadableFile>(*this, node, path);
}

absl::Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  LYNX_RETURN_IF_ERROR(Begin("rename " + from));
  const auto [source, source_name] = FindParent(from);
  const auto [target, target_name] = FindParent(to);
  if (source == nullptr || target == nullptr || !source->entries.contains(source_name)) {
    return absl::NotFoundError(absl::StrCat("cannot rename ", from, " to ", to));
  }
  if (const auto at = target->entries.find(target_name); at != target->entries.end() && !at->second->entries.empty()) {
    return absl::AlreadyExistsError(to + " is not empty");
  }
  target->entries[target_name] = source->entries[source_name];
  source->entries.erase(source_name);
  return absl::OkStatus();
}

absl::Status FaultyFileSystem::RemoveTree(const std::string& path) {
  const absl::Status status = Begin("remove " + path);
  const auto [parent, name] = FindParent(path);
  if (parent == nullptr || !parent->entries.contains(name)) return status;
  if (status.ok()) {
    parent->entries.erase(name);
  } else if (const NodePtr node = parent->entries[name]; fault_ == Fault::kStop && !node->entries.empty()) {
    node->entries.erase(node->entries.begin());
  }
  return status;
}

absl::Status FaultyFileSystem::SyncFolder(const std::string& path) {
  LYNX_RETURN_IF_ERROR(Begin("sync folder " + path));
  const NodePtr node = Find(path);
  if (node == nullptr || !node->folder) return absl::NotFoundError("no folder " + path);
  node->durable_entries = node->entries;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FaultyFileSystem::List(const std::string& path) {
  LYNX_RETURN_IF_ERROR(Begin("list " + path));
  const NodePtr node = Find(path);
  if (node == nullptr || !node->folder) return absl::NotFoundError("no folder " + path);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

}  // namespace lynx::worker

#include "tests/server/store/fault_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <random>

namespace lynx::server {
namespace {

constexpr size_t kSectorBytes = 512;

}  // namespace

// An open file. It begins with the fields that SQLite needs in every file. SQLite provides its memory, xOpen sets its fields,
// and xClose deletes `content`.
struct FaultDisk::Handle {
  sqlite3_file base;
  FaultDisk* disk;
  std::shared_ptr<Content>* content;
};

FaultDisk::Content& FaultDisk::ContentOf(sqlite3_file* file) { return **reinterpret_cast<Handle*>(file)->content; }
FaultDisk& FaultDisk::DiskOf(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file)->disk; }

FaultDisk::FaultDisk(const Files& files) : before_(sqlite3_vfs_find(nullptr)) {
  for (const auto& [path, bytes] : files) {
    auto content = std::make_shared<Content>();
    content->read = content->durable = bytes;
    content->created = true;
    files_[path] = std::move(content);
  }
  DescribeFiles();
  DescribeDisk();
  sqlite3_vfs_register(&vfs_, 1);
}

FaultDisk::~FaultDisk() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(before_, 1);
}

void FaultDisk::FailAt(int64_t n, DiskFault fault, bool lasting) {
  fail_at_ = operations_ + n;
  fault_ = fault;
  lasting_ = lasting;
  failed_ = false;
}

bool FaultDisk::Fails(bool takes_space) {
  ++operations_;
  if (fail_at_ == 0 || operations_ < fail_at_ || (operations_ > fail_at_ && !lasting_)) return false;
  if (fault_ == DiskFault::kFull && !takes_space) return false;
  failed_ = true;
  errno_ = fault_ == DiskFault::kFull ? ENOSPC : EIO;
  return true;
}

int64_t FaultDisk::bytes() const {
  int64_t sum = 0;
  for (const auto& [path, content] : files_) sum += static_cast<int64_t>(content->read.size());
  return sum;
}

void FaultDisk::Apply(const Change& change, std::string& bytes) {
  const auto offset = static_cast<size_t>(change.offset);
  if (change.truncates) {
    bytes.resize(offset);
    return;
  }
  if (bytes.size() < offset + change.bytes.size()) bytes.resize(offset + change.bytes.size());
  bytes.replace(offset, change.bytes.size(), change.bytes);
}

int FaultDisk::Write(Content& content, const std::string& bytes, int64_t offset) {
  const bool fails = Fails(/*takes_space=*/true);
  const int64_t grows = offset + static_cast<int64_t>(bytes.size()) - static_cast<int64_t>(content.read.size());
  if ((fails && fault_ == DiskFault::kFull) || (grows > 0 && this->bytes() + grows > capacity_)) {
    errno_ = ENOSPC;
    return SQLITE_FULL;
  }
  if (fails && fault_ == DiskFault::kError) return SQLITE_IOERR_WRITE;
  const Change change{.offset = offset, .bytes = bytes.substr(0, fails ? bytes.size() / 2 : bytes.size())};
  Apply(change, content.read);
  content.unsynced.push_back(change);
  return fails ? SQLITE_IOERR_WRITE : SQLITE_OK;
}

FaultDisk::Files FaultDisk::AfterKill() const {
  Files files;
  for (const auto& [path, content] : files_) files[path] = content->read;
  return files;
}

FaultDisk::Files FaultDisk::AfterPowerFailure(uint64_t seed) const {
  std::mt19937_64 random(seed);
  Files files;
  for (const auto& [path, content] : files_) {
    if (!content->created && random() % 2 == 0) continue;
    std::string bytes = content->durable;
    for (Change change : content->unsynced) {
      const uint64_t fate = random() % 4;
      if (fate < 2) continue;
      if (fate == 2) {
        // Only the first sectors of the write stay. Each of these sectors is complete.
        const size_t end = static_cast<size_t>(change.offset) + random() % (change.bytes.size() + 1);
        const size_t whole = end / kSectorBytes * kSectorBytes;
        change.bytes.resize(whole > static_cast<size_t>(change.offset) ? whole - static_cast<size_t>(change.offset) : 0);
      }
      Apply(change, bytes);
    }
    files[path] = std::move(bytes);
  }
  return files;
}

void FaultDisk::DescribeFiles() {
  methods_.iVersion = 1;
  methods_.xClose = [](sqlite3_file* file) {
    delete reinterpret_cast<Handle*>(file)->content;
    return SQLITE_OK;
  };
  methods_.xRead = [](sqlite3_file* file, void* to, int size, sqlite3_int64 offset) {
    if (DiskOf(file).Fails(false)) return SQLITE_IOERR_READ;
    const std::string& bytes = ContentOf(file).read;
    std::memset(to, 0, static_cast<size_t>(size));
    const auto from = std::min(static_cast<size_t>(offset), bytes.size());
    const size_t got = bytes.copy(static_cast<char*>(to), static_cast<size_t>(size), from);
    return got == static_cast<size_t>(size) ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
  };
  methods_.xWrite = [](sqlite3_file* file, const void* from, int size, sqlite3_int64 offset) {
    return DiskOf(file).Write(ContentOf(file), {static_cast<const char*>(from), static_cast<size_t>(size)}, offset);
  };
  methods_.xTruncate = [](sqlite3_file* file, sqlite3_int64 size) {
    if (DiskOf(file).Fails(false)) return SQLITE_IOERR_TRUNCATE;
    const Change change{.offset = size, .truncates = true};
    Apply(change, ContentOf(file).read);
    ContentOf(file).unsynced.push_back(change);
    return SQLITE_OK;
  };
  methods_.xSync = [](sqlite3_file* file, int) {
    Content& content = ContentOf(file);
    const bool fails = DiskOf(file).Fails(/*takes_space=*/false);
    if (!fails) {
      for (const Change& change : content.unsynced) Apply(change, content.durable);
      content.created = true;
    }
    content.unsynced.clear();
    return fails ? SQLITE_IOERR_FSYNC : SQLITE_OK;
  };
  methods_.xFileSize = [](sqlite3_file* file, sqlite3_int64* size) {
    if (DiskOf(file).Fails(false)) return SQLITE_IOERR_FSTAT;
    *size = static_cast<sqlite3_int64>(ContentOf(file).read.size());
    return SQLITE_OK;
  };
  methods_.xLock = [](sqlite3_file*, int) { return SQLITE_OK; };
  methods_.xUnlock = [](sqlite3_file*, int) { return SQLITE_OK; };
  methods_.xCheckReservedLock = [](sqlite3_file*, int* held) {
    *held = 0;
    return SQLITE_OK;
  };
  methods_.xFileControl = [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; };
  methods_.xSectorSize = [](sqlite3_file*) { return static_cast<int>(kSectorBytes); };
  methods_.xDeviceCharacteristics = [](sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; };
}

void FaultDisk::DescribeDisk() {
  vfs_.iVersion = 1;
  vfs_.szOsFile = sizeof(Handle);
  vfs_.mxPathname = 512;
  vfs_.zName = "fault-disk";
  vfs_.pAppData = this;
  vfs_.xOpen = [](sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out_flags) {
    FaultDisk& disk = *Of(vfs);
    file->pMethods = nullptr;
    const std::string path = name != nullptr ? name : "unnamed" + std::to_string(++disk.unnamed_);
    const bool is_new = disk.files_.count(path) == 0;
    if (disk.Fails(is_new) || (is_new && (flags & SQLITE_OPEN_CREATE) == 0)) return SQLITE_CANTOPEN;
    if (is_new) disk.files_[path] = std::make_shared<Content>();
    auto* handle = reinterpret_cast<Handle*>(file);
    handle->disk = &disk;
    handle->content = new std::shared_ptr<Content>(disk.files_[path]);
    file->pMethods = &disk.methods_;
    if (out_flags != nullptr) *out_flags = flags;
    return SQLITE_OK;
  };
  vfs_.xDelete = [](sqlite3_vfs* vfs, const char* name, int) {
    if (Of(vfs)->Fails(false)) return SQLITE_IOERR_DELETE;
    return Of(vfs)->files_.erase(name) == 1 ? SQLITE_OK : SQLITE_IOERR_DELETE_NOENT;
  };
  vfs_.xAccess = [](sqlite3_vfs* vfs, const char* name, int, int* out) {
    if (Of(vfs)->Fails(false)) return SQLITE_IOERR_ACCESS;
    const auto found = Of(vfs)->files_.find(name);
    *out = found != Of(vfs)->files_.end() ? 1 : 0;
    return SQLITE_OK;
  };
  vfs_.xFullPathname = [](sqlite3_vfs*, const char* name, int size, char* out) {
    if (std::strlen(name) >= static_cast<size_t>(size)) return SQLITE_CANTOPEN;
    std::strcpy(out, name);
    return SQLITE_OK;
  };
  vfs_.xRandomness = [](sqlite3_vfs* vfs, int size, char* out) {
    std::generate_n(out, size, [&] { return static_cast<char>(Of(vfs)->random_()); });
    return size;
  };
  vfs_.xSleep = [](sqlite3_vfs*, int micros) { return micros; };
  vfs_.xCurrentTime = [](sqlite3_vfs*, double* days) {
    *days = 2'460'000.5;
    return SQLITE_OK;
  };
  vfs_.xGetLastError = [](sqlite3_vfs* vfs, int, char*) { return Of(vfs)->errno_; };
}

}  // namespace lynx::server

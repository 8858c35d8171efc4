// See identity_directory.h.
#include "security/identity_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "common/status.h"
#include "node/file.h"
#include "security/certificate.h"
#include "security/secret.h"

namespace lynx {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxPem = 64 << 10;
constexpr char kPrefix[] = "identity-";

absl::Status MakePrivate(const std::string& path) {
  LYNX_RETURN_IF_ERROR(MakeDirectories(path));
  if (::chmod(path.c_str(), 0700) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("cannot close ", path, " to others"));
}

}  // namespace

absl::StatusOr<Identity> IdentityDirectory::Read() const {
  Identity identity;
  LYNX_ASSIGN_OR_RETURN(identity.authority, ReadAuthority());
  LYNX_ASSIGN_OR_RETURN(identity.certificate, ReadFile(certificate_path(), kMaxPem));
  LYNX_ASSIGN_OR_RETURN(identity.private_key, ReadSecretFile(private_key_path()));
  LYNX_RETURN_IF_ERROR(Annotate(CheckKeyFits(identity.certificate, identity.private_key), path_));
  return identity;
}

absl::StatusOr<std::string> IdentityDirectory::ReadAuthority() const { return ReadFile(authority_path(), kMaxPem); }

absl::Status IdentityDirectory::Replace(const Identity& identity) const {
  LYNX_RETURN_IF_ERROR(CheckKeyFits(identity.certificate, identity.private_key));
  LYNX_ASSIGN_OR_RETURN(const CertificateFacts facts, ReadCertificate(identity.certificate));
  LYNX_RETURN_IF_ERROR(MakePrivate(path_));
  const std::string name = kPrefix + facts.serial;
  const std::string folder = path_ + "/" + name;
  LYNX_RETURN_IF_ERROR(MakePrivate(folder));
  LYNX_RETURN_IF_ERROR(WriteFileDurably(authority_path(), identity.authority));
  LYNX_RETURN_IF_ERROR(WriteSecretFile(folder + "/key.pem", identity.private_key));
  LYNX_RETURN_IF_ERROR(WriteFileDurably(folder + "/cert.pem", identity.certificate));
  std::error_code error;
  const fs::path link = path_ + "/current";
  const fs::path beside = path_ + "/current.new";
  const fs::path before = fs::read_symlink(link, error).filename();
  fs::remove(beside, error);
  fs::create_symlink(name, beside, error);
  if (!error) fs::rename(beside, link, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot replace ", link.string(), ": ", error.message()));
  // The previous identity stays, because a reader may just have followed the link. Older identities are removed.
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string other = entry.path().filename().string();
    std::error_code ignored;
    if (absl::StartsWith(other, kPrefix) && other != name && other != before.string()) fs::remove_all(entry.path(), ignored);
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> IdentityDirectory::Lock(Nanos limit) const {
  LYNX_RETURN_IF_ERROR(MakePrivate(path_));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit.value);
  while (true) {
    absl::StatusOr<UniqueFd> lock = LockFile(path_ + "/lock");
    const bool held = lock.status().code() == absl::StatusCode::kFailedPrecondition;
    if (!held || std::chrono::steady_clock::now() >= deadline) return lock;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace lynx

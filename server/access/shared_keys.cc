// See shared_keys.h.
#include "server/access/shared_keys.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "node/file.h"
#include "security/authority.h"
#include "security/certificate.h"
#include "security/secret.h"
#include "server/wire/connection_key.h"

namespace lynx::server {
namespace {

constexpr int64_t kMaxBytes = 64 << 10;

std::string KeyPath(const SharedPlaces& places) { return places.authority_directory + "/ca.key"; }
std::string CertificatePath(const SharedPlaces& places) { return places.authority_directory + "/ca.pem"; }

absl::StatusOr<std::optional<std::string>> FileIfThere(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  LYNX_ASSIGN_OR_RETURN(std::string content, ReadFile(path, kMaxBytes));
  return content;
}

bool Same(const std::string& a, const std::string& b) { return absl::StripAsciiWhitespace(a) == absl::StripAsciiWhitespace(b); }

const std::string* Find(const SharedValues& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

// Compares the file with the content in the store. True: there is no file. FailedPrecondition: the file has another content.
absl::StatusOr<bool> IsMissing(const std::string& path, const std::string& content, const std::string& store,
                               const std::string& aside) {
  LYNX_ASSIGN_OR_RETURN(const std::optional<std::string> file, FileIfThere(path));
  if (!file.has_value()) return true;
  if (Same(*file, content)) return false;
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is another key than the one that ", store, " has for all its servers: to make this server one of them, move ",
      aside, " aside and start again, and it takes the key from there; if the database is the wrong one, check --store"));
}

// Returns when the first certificate in the text expires; 0: the text has no certificate.
Nanos EndOf(const std::string& pem) {
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(pem);
  return facts.ok() ? facts->ends : Nanos(0);
}

}  // namespace

bool IsComplete(const SharedValues& stored, const SharedPlaces& places) {
  const bool tls = !places.authority_directory.empty();
  return stored.contains(kSharedConnectionKey) && stored.contains(kSharedCheckpoints) &&
         (!tls || (stored.contains(kSharedAuthorityKey) && stored.contains(kSharedAuthority)));
}

absl::Status TakeShared(const SharedValues& stored, const SharedPlaces& places) {
  const std::string* const connections = Find(stored, kSharedConnectionKey);
  const bool tls = !places.authority_directory.empty();
  if (!tls && stored.contains(kSharedAuthorityKey)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the servers of ", places.store,
                     " use TLS, and this one would not, so that anybody could do everything "
                     "when it leads: start it with --tls on loopback, or on other addresses without --insecure; if the "
                     "database is the wrong one, check --store"));
  }
  const std::string* const key = tls ? Find(stored, kSharedAuthorityKey) : nullptr;
  const std::string* const certificate = tls ? Find(stored, kSharedAuthority) : nullptr;
  bool lacks_connections = false, lacks_key = false;
  if (connections != nullptr) {
    LYNX_ASSIGN_OR_RETURN(lacks_connections,
                          IsMissing(places.connection_key, *connections, places.store, places.connection_key));
  }
  if (key != nullptr) {
    LYNX_ASSIGN_OR_RETURN(lacks_key, IsMissing(KeyPath(places), *key, places.store, places.authority_directory));
  }
  if (lacks_connections) LYNX_RETURN_IF_ERROR(WriteSecretFile(places.connection_key, *connections));
  if (lacks_key) {
    LYNX_RETURN_IF_ERROR(MakeDirectories(places.authority_directory));
    LYNX_RETURN_IF_ERROR(WriteSecretFile(KeyPath(places), *key));
  }
  if (certificate == nullptr) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(const std::optional<std::string> own, FileIfThere(CertificatePath(places)));
  if (own.has_value() && (Same(*own, *certificate) || EndOf(*own) > EndOf(*certificate))) return absl::OkStatus();
  return WriteFileDurably(CertificatePath(places), *certificate);
}

absl::StatusOr<SharedValues> MissingShared(const SharedValues& stored, const SharedPlaces& places, bool used, Nanos now,
                                           Nanos authority_life) {
  // If this server was alone until now, or its store was moved, only this server has the keys that the nodes and people know.
  std::error_code ignored;
  if (stored.empty() && used && !std::filesystem::exists(places.connection_key, ignored)) {
    return absl::FailedPreconditionError(absl::StrCat(
        places.store,
        " is that of a cluster whose keys are not in it yet, and not in this server's --data-dir: first start "
        "the server with the --data-dir of that cluster, which writes them there, or copy connections.key and tls/ from it to ",
        std::filesystem::path(places.connection_key).parent_path().string()));
  }
  SharedValues missing;
  if (Find(stored, kSharedConnectionKey) == nullptr) {
    LYNX_RETURN_IF_ERROR(ConnectionKey::Open(places.connection_key).status());
    LYNX_ASSIGN_OR_RETURN(missing[kSharedConnectionKey], ReadSecretFile(places.connection_key));
  }
  if (Find(stored, kSharedCheckpoints) == nullptr) missing[kSharedCheckpoints] = places.checkpoint_root;
  if (places.authority_directory.empty()) return missing;
  LYNX_ASSIGN_OR_RETURN(const Authority authority, Authority::Open(places.authority_directory, now, authority_life));
  if (Find(stored, kSharedAuthorityKey) == nullptr) {
    LYNX_ASSIGN_OR_RETURN(missing[kSharedAuthorityKey], ReadFile(KeyPath(places), kMaxBytes));
  }
  const std::string* const certificate = Find(stored, kSharedAuthority);
  if (certificate == nullptr || !Same(*certificate, authority.chain())) missing[kSharedAuthority] = authority.chain();
  return missing;
}

}  // namespace lynx::server

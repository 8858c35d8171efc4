// See connection_key.h.
#include "server/wire/connection_key.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/connection_secret.h"
#include "common/hmac.h"
#include "common/status.h"
#include "security/secret.h"

namespace lynx::server {

absl::StatusOr<ConnectionKey> ConnectionKey::Open(const std::string& path) {
  absl::StatusOr<std::string> key = ReadSecretFile(path);
  if (absl::IsNotFound(key.status())) {
    key = NewSecret();
    LYNX_RETURN_IF_ERROR(WriteSecretFile(path, *key));
  }
  if (!key.ok()) return key.status();
  if (!IsConnectionSecret(*key)) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: it should be ", kConnectionSecretDigits,
                     " hexadecimal digits; remove it, and ranks that are just starting begin again with a new one"));
  }
  return ConnectionKey(*std::move(key));
}

std::string ConnectionKey::SecretOf(const JobId& job, Generation generation) const {
  LYNX_CHECK(!key_.empty());
  const Mac secret = HmacSha256(key_, absl::StrCat("lynx connections of ", job.value, " ", generation.value));
  return std::string(absl::BytesToHexString(std::string(secret.data(), secret.size())));
}

}  // namespace lynx::server

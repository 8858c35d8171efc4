// Secrets: 256 random bits each. The server stores only their digests; files with secrets are readable only for their owner.
// Thread-safe.
#ifndef LYNX_SECURITY_SECRET_H_
#define LYNX_SECURITY_SECRET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx {

// Returns 64 hexadecimal digits.
std::string NewSecret();
// The SHA-256 of a secret, which the server stores instead. Secrets that people invent can be guessed, so they would need a
// slow hash. Nobody can guess 256 random bits, so a fast hash is enough. A fast hash makes it possible to check every call.
std::string SecretDigest(const std::string& secret);
// Returns `digits` random hexadecimal digits, which need not be secret.
std::string NewRandomId(int digits);

// Writes the file as WriteFileDurably does. Only the owner may read the file.
absl::Status WriteSecretFile(const std::string& path, const std::string& content);
// Returns the text of the file without surrounding white space. "-" means standard input. PermissionDenied: others may read or
// write the file. InvalidArgument: the file is empty.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

}  // namespace lynx

#endif  // LYNX_SECURITY_SECRET_H_

// Secrets: made of 256 random bits, known to who keeps them by a digest alone, and in files that only their owner reads.
// Thread-safe.
#ifndef LYNX_SECURITY_SECRET_H_
#define LYNX_SECURITY_SECRET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lynx {

// 64 hexadecimal digits.
std::string NewSecret();
// What is kept of one: its SHA-256. A slow hash protects what people think up and others can guess; 256 random bits cannot be
// guessed at any speed, and a fast one lets every call be checked.
std::string SecretDigest(const std::string& secret);
// `digits` random hexadecimal digits, which need not be secret.
std::string NewRandomId(int digits);

// As WriteFileDurably, and only its owner may read it.
absl::Status WriteSecretFile(const std::string& path, const std::string& content);
// Without space around it. "-" is standard input. PermissionDenied where others may read or write the file; InvalidArgument
// where it is empty.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

}  // namespace lynx

#endif  // LYNX_SECURITY_SECRET_H_

// See secret.h.
#include "security/secret.h"

#include <openssl/rand.h>
#include <sys/stat.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "node/file.h"

namespace lynx {
namespace {

constexpr int kSecretBytes = 32;
constexpr int64_t kMaxSecretFile = 64 << 10;

std::string RandomHex(size_t bytes) {
  std::string random(bytes, '\0');
  // RAND_bytes fails only if the kernel provides no randomness. Then the process must not continue.
  LYNX_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(bytes)) == 1);
  return std::string(absl::BytesToHexString(random));
}

}  // namespace

std::string NewSecret() { return RandomHex(kSecretBytes); }
std::string SecretDigest(const std::string& secret) { return Sha256Hex(secret); }
std::string NewRandomId(int digits) {
  return RandomHex(static_cast<size_t>(digits + 1) / 2).substr(0, static_cast<size_t>(digits));
}

absl::Status WriteSecretFile(const std::string& path, const std::string& content) {
  return WriteFileDurably(path, content, 0600);
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  const std::string source = path == "-" ? "/dev/stdin" : path;
  struct stat file {};
  if (path != "-" && ::stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && (file.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("others than its owner may read or write ", path, ", which holds a secret: chmod 600 ", path));
  }
  LYNX_ASSIGN_OR_RETURN(const std::string content, ReadFile(source, kMaxSecretFile));
  std::string secret(absl::StripAsciiWhitespace(content));
  if (secret.empty()) return absl::InvalidArgumentError(absl::StrCat(source, " is empty"));
  return secret;
}

}  // namespace lynx

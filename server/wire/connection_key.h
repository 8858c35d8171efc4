// ConnectionKey: the key from which the server derives the secrets with which ranks of a generation recognize each other. Every
// generation has a different secret, and no secret reveals another. Secrets are not stored: a restarted server derives the same
// ones. So if some ranks start before the restart and others after it, they still recognize each other.
//
// A value; thread-safe.
#ifndef LYNX_SERVER_WIRE_CONNECTION_KEY_H_
#define LYNX_SERVER_WIRE_CONNECTION_KEY_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace lynx::server {

class ConnectionKey {
 public:
  // Reads the key from the file, or creates it at the first start; only its owner may read the file. Errors name the file and
  // say what to do.
  static absl::StatusOr<ConnectionKey> Open(const std::string& path);
  // A key without a file, for a server that starts no ranks.
  ConnectionKey() = default;

  // Returns 64 hexadecimal digits.
  std::string SecretOf(const JobId& job, Generation generation) const;

 private:
  explicit ConnectionKey(std::string key) : key_(std::move(key)) {}

  std::string key_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_WIRE_CONNECTION_KEY_H_

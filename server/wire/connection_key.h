// ConnectionKey: what the secrets are made of by which the ranks of a job's generation know one another. Every generation has
// its own, and none tells of another. None is stored: a server that was started again gives the same ones, so ranks that it
// finds half started still meet.
//
// A value; thread-safe.
#ifndef LYNX_SERVER_WIRE_CONNECTION_KEY_H_
#define LYNX_SERVER_WIRE_CONNECTION_KEY_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/ids.h"

namespace lynx {

class ConnectionKey {
 public:
  // Of the file, which only its owner may read; made at the first start. Errors name the file and say what to do.
  static absl::StatusOr<ConnectionKey> Open(const std::string& path);
  // Of no file: for a server that hands out no ranks.
  ConnectionKey() = default;

  // 64 hexadecimal digits.
  std::string SecretOf(const JobId& job, Generation generation) const;

 private:
  explicit ConnectionKey(std::string key) : key_(std::move(key)) {}

  std::string key_;
};

}  // namespace lynx

#endif  // LYNX_SERVER_WIRE_CONNECTION_KEY_H_

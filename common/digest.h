// SHA-256 of a byte string, as 64 lower-case hexadecimal digits. The digest of a plan identifies the plan. The digests of
// checkpoint files show whether the files are unchanged.
#ifndef LYNX_COMMON_DIGEST_H_
#define LYNX_COMMON_DIGEST_H_

#include <memory>
#include <string>
#include <string_view>

namespace lynx {

std::string Sha256Hex(std::string_view bytes);

// Computes the digest of bytes that come in parts, such as files. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::string_view bytes);
  std::string FinishHex();  // may be called only once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lynx

#endif  // LYNX_COMMON_DIGEST_H_

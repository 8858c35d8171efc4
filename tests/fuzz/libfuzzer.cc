// Coverage-guided fuzzing with libFuzzer: the first byte picks the target. See tests/fuzz/CMakeLists.txt.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto& targets = lynx::FuzzTargets();
  targets[data[0] % targets.size()].run(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}

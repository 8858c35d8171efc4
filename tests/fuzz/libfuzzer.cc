// Coverage-guided fuzzing of one target with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer:
//
//   LYNX_FUZZ_TARGET=program build-fuzz/bin/fuzz -max_total_time=600 FOLDER tests/fuzz/corpus/program
//
// New inputs are written to FOLDER. First, the valid inputs of the target are written there. tests/fuzz/run.sh runs all
// targets.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/targets.h"

namespace {

const lynx::FuzzTarget& Target() {
  static const lynx::FuzzTarget& target = [&]() -> const lynx::FuzzTarget& {
    const char* name = std::getenv("LYNX_FUZZ_TARGET");
    std::string names;
    for (const lynx::FuzzTarget& one : lynx::FuzzTargets()) {
      if (name != nullptr && one.name == name) return one;
      names += " " + one.name;
    }
    std::fprintf(stderr, "LYNX_FUZZ_TARGET is %s; it must be one of%s\n", name == nullptr ? "not set" : name, names.c_str());
    std::exit(2);
  }();
  return target;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  int number = 0;
  for (int i = 1; i < *argc; ++i) {
    const std::filesystem::path folder = (*argv)[i];
    if (!std::filesystem::is_directory(folder)) continue;
    for (const std::string& good : Target().corpus)
      std::ofstream(folder / ("good-" + std::to_string(number++)), std::ios::binary) << good;
    break;
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Target().run(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

// The keys of NeMo's configurations of GPT models (examples/nlp/language_modeling/conf/megatron_gpt_config.yaml of NeMo 1), and
// the flags of Megatron-LM with the same meaning. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_NEMO_KEYS_H_
#define LYNX_CLI_FRAMEWORKS_NEMO_KEYS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace lynx::cli {

// kValue: the flag takes the key's value. kFlag: the flag is given if the value is true. kUnless: it is given if the value is
// false.
enum class NemoKeyKind : uint8_t { kValue, kFlag, kUnless };

struct NemoKey {
  const char* path;  // "model.num_layers"
  NemoKeyKind kind;
  const char* flag;
};
absl::Span<const NemoKey> NemoKeys();

// Returns the text, in which NeMo's keys replace the flags of Megatron-LM.
std::string WithNemoKeys(const std::string& text);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_NEMO_KEYS_H_

#include "worker/data/dataset.h"

#include "common/check.h"
#include "worker/data/token_dataset.h"

namespace lynx::worker {

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataSpec& data, int32_t seq, int32_t vocab, uint64_t seed) {
  switch (data.kind) {
    case DataKind::kText: return OpenTextDataset(data.path, seq, vocab, seed);
    case DataKind::kMegatron: return OpenMegatronDataset(data.path, seq, vocab, seed);
  }
  LYNX_CHECK(false);
}

}  // namespace lynx::worker

// TensorPlace: the part of a whole tensor that a shard or a rank has. A shard stores its places in its metadata. So any other
// layout, and any other program, can put the whole tensor together. Values; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_TENSOR_PLACE_H_
#define LYNX_WORKER_CHECKPOINT_TENSOR_PLACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model_state.h"

namespace lynx::worker {

struct TensorPlace {
  int64_t rows = 0;  // of the whole tensor; a vector has one row
  int64_t columns = 0;
  std::vector<ParameterPiece> pieces;  // one after another at their `offset`: the part is one contiguous range of memory

  int64_t elements() const;  // of the part
};

TensorPlace PlaceOf(const ParameterSlot& slot);
// The place of a whole tensor.
TensorPlace WholePlace(int64_t rows, int64_t columns);

// The text of a place, such as "192x64: 0+32,0+64 64+32,0+64": rows x columns of the whole tensor, then for each piece its
// first row + rows and its first column + columns.
std::string PlaceText(const TensorPlace& place);
// DataLoss unless the text describes pieces within their tensor.
absl::StatusOr<TensorPlace> ParsePlace(const std::string& text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_TENSOR_PLACE_H_

// TensorPlace says which part of a whole tensor a shard or a rank has. A shard stores its places in its metadata. So a run with
// another layout, or another program, can put the whole tensor together. Values; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_TENSOR_PLACE_H_
#define LYNX_WORKER_CHECKPOINT_TENSOR_PLACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/model_state.h"

namespace lynx::worker {

struct TensorPlace {
  int64_t rows = 0;  // the rows of the whole tensor; a vector has one row
  int64_t columns = 0;
  std::vector<ParameterPiece> pieces;  // each piece begins at its `offset`; together they are one contiguous range of memory

  int64_t elements() const;  // the number of elements of the part
};

TensorPlace PlaceOf(const ParameterSlot& slot);
// Returns the place of a part that is the whole tensor.
TensorPlace WholePlace(int64_t rows, int64_t columns);

// Returns the text of a place, such as "192x64: 0+32,0+64 64+32,0+64". It has the rows and columns of the whole tensor. Then it
// has for each piece "first row + number of rows, first column + number of columns".
std::string PlaceText(const TensorPlace& place);
// Returns DataLoss unless the text describes pieces that lie within their tensor.
absl::StatusOr<TensorPlace> ParsePlace(const std::string& text);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_TENSOR_PLACE_H_

// The softmax of rows of scores, computed tile by tile. For each row it keeps the largest score m so far, and the sum l of
// e^(score - m) so far (online softmax, Milakov and Gimelshein 2018).
#ifndef LYNX_WORKER_BACKEND_CUDA_ATTENTION_SOFTMAX_CUH_
#define LYNX_WORKER_BACKEND_CUDA_ATTENTION_SOFTMAX_CUH_

#include <limits>

#include "worker/backend/cuda/attention_tile.cuh"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

// The numbers m and l of the two rows of a thread: `max` and `sum`. The kSide threads of a row hold the same values.
struct SoftmaxRows {
  float max[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum[2] = {};

  // Adds a tile of scaled scores. Replaces visible scores by e^(score - m), and hidden scores by 0. The caller must multiply
  // the partial result by `factors`. The first tile must have a visible column for every row that exists.
  __device__ void TakeIn(const TilePlace& at, Four& scores, float factors[2]) {
    for (int i = 0; i < 2; ++i) {
      float largest = max[i];
      for (int j = 0; j < 2; ++j) {
        if (at.Visible(i, j)) largest = Max::Of(largest, scores.at[i][j]);
      }
      largest = ReduceLanes<Max, kSide>(largest);
      float tile_sum = 0;
      for (int j = 0; j < 2; ++j) {
        scores.at[i][j] = at.Visible(i, j) ? expf(scores.at[i][j] - largest) : 0.0f;
        tile_sum += scores.at[i][j];
      }
      tile_sum = ReduceLanes<Sum, kSide>(tile_sum);
      factors[i] = at.Row(i) < at.s ? expf(max[i] - largest) : 0.0f;  // 0 for the first tile
      max[i] = largest;
      sum[i] = sum[i] * factors[i] + tile_sum;
    }
  }
};

// Returns the factor of the scores.
inline __device__ float ScoreFactor(const AttentionShape& shape) { return shape.factor / sqrtf(static_cast<float>(shape.d)); }

// Returns the scores of a tile, scaled.
template <class T>
__device__ Four Scores(const HeadRows<const T>& in, const TilePlace& at, const AttentionShape& shape, Tile& left, Tile& right) {
  Four scores = Dot(in.q.From(at.first_row), in.k.From(at.first_column), shape.d, left, right);
  const float scale = ScoreFactor(shape);
  for (auto& row : scores.at) {
    for (float& score : row) score *= scale;
  }
  return scores;
}

// Returns the grid of a kernel that has a block for each tile of rows (or of columns) of each of `heads` heads.
inline dim3 TileGrid(const AttentionShape& shape, int64_t heads) {
  return dim3(BlocksOf(shape.s, kTile), BlocksOf(heads, 1), BlocksOf(shape.b, 1));
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_ATTENTION_SOFTMAX_CUH_

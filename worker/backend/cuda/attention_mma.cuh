// The parts of the fused attention kernels on bfloat16 that use tensor cores. A block has kOwnRows rows of a head as its own
// rows, 16 for each warp, and keeps them in registers. It loops over tiles of the head's other rows: queries over keys, or keys
// over queries. While it works on a tile in shared memory, the copies of the next tile are under way.
//
// A product multiplies bfloat16 and sums in fp32. The values between two products (the probabilities, and their gradients) are
// rounded to bfloat16 when the second product reads them, and are never stored in memory. All other arithmetic is fp32. The
// dropout decisions are those of the other kernels. A warp looks for hidden scores only in the tiles that the diagonal crosses.
// Rows and columns that do not exist are zeros, so they add nothing to what exists.
#ifndef LYNX_WORKER_BACKEND_CUDA_ATTENTION_MMA_CUH_
#define LYNX_WORKER_BACKEND_CUDA_ATTENTION_MMA_CUH_

#include <bit>

#include "worker/backend/cuda/attention_gradient.cuh"
#include "worker/backend/cuda/elementwise.cuh"
#include "worker/backend/cuda/tensor_core.cuh"

namespace lynx::worker::cuda {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = kMmaWarps * kWarp;
inline constexpr int kOwnRows = kMmaWarps * 16;
inline constexpr int64_t kMaxMmaHeadSize = 128;  // the rows of larger heads need more than a block's shared memory
// With these limits, 32 bits count the positions of a sequence, and the elements from a row of a tile to another one, and the
// second dimension of a grid, at most 65,535, has a block for each 64 positions.
inline constexpr int64_t kMaxMmaPositions = int64_t{65'535} * kOwnRows, kMaxMmaWidth = int64_t{1} << 24;
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// How a kernel may access the rows of the heads.
struct MmaAccess {
  bool eights;  // true: it reads packs of eight elements
  bool pairs;   // true: it writes pairs of elements

  template <class... T>
  static MmaAccess Of(int64_t d, const Bfloat16* written, const T*... read) {
    return {.eights = (Fits(d, 8, read) && ...), .pairs = Fits(d, 2, written)};
  }

 private:
  static bool Fits(int64_t d, int64_t width, const Bfloat16* tensor) {
    return d % width == 0 && reinterpret_cast<uintptr_t>(tensor) % (static_cast<uintptr_t>(width) * sizeof(Bfloat16)) == 0;
  }
};

// Copies tiles of kRows rows of a head into shared memory, one after another.
template <int kMost, int kRows>
class TileCopies {
 public:
  // `from`: the rows from the first tile on. `eights`: the rows can be read in packs of eight elements.
  __device__ TileCopies(const RowsOf<const Bfloat16>& from, int d, bool eights)
      : data_(from.data), stride_(static_cast<int>(from.stride)), d_(d), eights_(eights) {}

  // Begins to copy the columns [0, kMost) of the tile to `to`. Writes zeros for columns that do not exist, and for all rows but
  // the first `rows`. The caller waits for the copies.
  __device__ void Begin(int rows, Bfloat16 (*to)[kMost + 8]) const {
    if (!eights_) return CopyElements(rows, to);
    if (rows >= kRows && d_ == kMost) {
      BeginPacks<true>(rows, to);
    } else {
      BeginPacks<false>(rows, to);
    }
  }

  // Moves forward by `elements` elements, to another tile.
  __device__ void Advance(int64_t elements) { data_ += elements; }

 private:
  static constexpr int kThreads = kMost % 64 == 0 ? 8 : 4;  // threads per row; each copies every kThreads-th pack
  static constexpr int kAtOnce = kMmaThreads / kThreads;    // rows

  __device__ static int Row() { return static_cast<int>(threadIdx.x) / kThreads; }
  __device__ static int Column() { return static_cast<int>(threadIdx.x) % kThreads * 8; }

  // kAll: all rows and columns exist.
  template <bool kAll>
  __device__ void BeginPacks(int rows, Bfloat16 (*to)[kMost + 8]) const {
    const SharedAddress place = AddressOf(&to[Row()][Column()]);
    const Bfloat16* from = data_ + (Row() * stride_ + Column());
#pragma unroll
    for (int row = 0; row < kRows; row += kAtOnce, from += kAtOnce * stride_) {
      if (kRows % kAtOnce != 0 && Row() + row >= kRows) break;
#pragma unroll
      for (int column = 0; column < kMost; column += kThreads * 8) {
        const bool exists = kAll || (Row() + row < rows && Column() + column < d_);
        BeginCopy<16>(from + column, exists, place + LanePlaces<kMost>::At(row, column));
      }
    }
  }

  __device__ void CopyElements(int rows, Bfloat16 (*to)[kMost + 8]) const {
    for (int i = threadIdx.x; i < kRows * kMost; i += kMmaThreads) {
      const int row = i / kMost, column = i % kMost;
      to[row][column] = row < rows && column < d_ ? data_[row * stride_ + column] : Bfloat16{};
    }
  }

  const Bfloat16* data_;  // the tile's first element
  int stride_, d_;
  bool eights_;
};

// The part that a lane has of the 16 own rows of its warp, in shared memory: for the left side of products.
template <int kMost>
struct OwnInShared {
  SharedAddress place;

  // `rows`: the block's own rows.
  __device__ explicit OwnInShared(const Bfloat16 (*rows)[kMost + 8])
      : place(AddressOf(rows[WarpOfBlock() * 16]) + LanePlaces<kMost>::Straight()) {}
  // Returns the columns [16 k, 16 k + 16).
  __device__ LeftFragment At(int k) const { return LoadLeft(place + LanePlaces<kMost>::At(0, k * 16)); }
};

// Holds the same part of the rows as OwnInShared, in registers.
template <int kMost>
struct OwnInRegisters {
  LeftFragment fragments[kMost / 16];

  __device__ explicit OwnInRegisters(const Bfloat16 (*rows)[kMost + 8]) {
    const OwnInShared<kMost> shared(rows);
#pragma unroll
    for (int k = 0; k < kMost / 16; ++k) fragments[k] = shared.At(k);
  }
  __device__ const LeftFragment& At(int k) const { return fragments[k]; }
};

// The elements that a lane has of the tile (16, kOthers) of its warp.
template <int kOthers>
struct WarpTile {
  SumFragment at[kOthers / 8];
};

// Returns the warp's own rows times the transposed other rows: (16, kOthers). `others`: LanePlaces::Turned() bytes after the
// first other row.
template <int kMost, int kOthers, class Own>
__device__ WarpTile<kOthers> OwnTimesOthers(const Own& own, SharedAddress others) {
  WarpTile<kOthers> tile;
#pragma unroll
  for (int k = 0; k < kMost / 16; ++k) {
    const LeftFragment left = own.At(k);
#pragma unroll
    for (int j = 0; j < kOthers / 16; ++j) {
      const RightFragments right = LoadRightTransposed(others + LanePlaces<kMost>::At(j * 16, k * 16));
      MultiplyAdd(left, right, 0, tile.at[2 * j]);
      MultiplyAdd(left, right, 1, tile.at[2 * j + 1]);
    }
  }
  return tile;
}

// The part that a lane has of its warp's result (16, d).
template <int kMost>
struct WarpRows {
  SumFragment at[kMost / 8];

  // Multiplies the lane's row g by the first factor and its row g + 8 by the second one (tensor_core.cuh defines g).
  __device__ void Scale(const float factors[2]) {
#pragma unroll
    for (SumFragment& sums : at) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums.at[e] *= factors[e / 2];
    }
  }

  // Adds the product of the rounded weights and the other rows. `others`: LanePlaces::Straight() bytes after the first other
  // row.
  template <int kOthers>
  __device__ void Add(const WarpTile<kOthers>& weights, SharedAddress others) {
#pragma unroll
    for (int k = 0; k < kOthers / 16; ++k) {
      const LeftFragment left = LeftOf(weights.at[2 * k], weights.at[2 * k + 1]);
#pragma unroll
      for (int j = 0; j < kMost / 16; ++j) {
        const RightFragments right = LoadRight(others + LanePlaces<kMost>::At(k * 16, j * 16));
        MultiplyAdd(left, right, 0, at[2 * j]);
        MultiplyAdd(left, right, 1, at[2 * j + 1]);
      }
    }
  }

  // Writes the result to `to`, the block's own rows. A lane has two rows; each is multiplied by its scale. `pairs`: the rows
  // can be written in pairs of elements.
  __device__ void Store(const RowsOf<Bfloat16>& to, int d, bool pairs, const float scales[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = WarpOfBlock() * 16 + LaneOfWarp() / 4 + half * 8, first_column = LaneOfWarp() % 4 * 2;
      if (row >= to.rows) return;
      Bfloat16* const data = to.data + row * to.stride + first_column;
#pragma unroll
      for (int j = 0; j < kMost / 8; ++j) {
        const float low = at[j].at[2 * half] * scales[half], high = at[j].at[2 * half + 1] * scales[half];
        if (pairs) {
          if (first_column + j * 8 < d) std::bit_cast<Pack<Bfloat16, 2>>(RoundedPair(low, high)).Store(data + j * 8);
        } else {
          if (first_column + j * 8 < d) data[j * 8] = low;
          if (first_column + j * 8 + 1 < d) data[j * 8 + 1] = high;
        }
      }
    }
  }
};

enum class OwnRows : uint8_t { kQueries, kKeys };

// The place of a tile of a warp: its own rows [first_own, first_own + 16) and the other rows [first_other, first_other +
// kOthers) of a head. Says which rows and columns a lane's elements have: element e of fragment j.
template <OwnRows kOwn, int kOthers>
struct MmaPlace {
  int s, first_own, first_other;

  __device__ int Own(int half) const { return first_own + LaneOfWarp() / 4 + half * 8; }
  __device__ int Other(int j, int e) const { return first_other + j * 8 + LaneOfWarp() % 4 * 2 + e % 2; }
  __device__ int Query(int j, int e) const { return kOwn == OwnRows::kQueries ? Own(e / 2) : Other(j, e); }
  __device__ int Key(int j, int e) const { return kOwn == OwnRows::kQueries ? Other(j, e) : Own(e / 2); }
  // True if no query of the tile may use a key of the tile.
  __device__ bool AllHidden() const {
    return kOwn == OwnRows::kQueries ? first_other > first_own + 15 : first_other + kOthers <= first_own;
  }
  // True if every query of the tile may use every key of the tile.
  __device__ bool AllVisible() const {
    return kOwn == OwnRows::kQueries ? first_other + kOthers - 1 <= first_own : first_other >= first_own + 15;
  }

  // Replaces the scores of keys that come after their query by -infinity.
  __device__ void Hide(WarpTile<kOthers>& scores) const {
#pragma unroll
    for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (Key(j, e) > Query(j, e)) scores.at[j].at[e] = -std::numeric_limits<float>::infinity();
      }
    }
  }
};

// Exchanges bits between pairs of lanes whose numbers differ by `distance`. Cuts the words into groups of kWidth bits. The
// lower lane of a pair keeps its even groups, and gets the even groups of the other lane in place of its odd ones. The upper
// lane gets the lower lane's odd groups in place of its even ones.
template <int kWidth>
__device__ uint32_t ExchangeBits(uint32_t word, int distance) {
  static_assert(kWidth == 1 || kWidth == 2);
  constexpr uint32_t kEven = kWidth == 1 ? 0x55555555u : 0x33333333u;
  const uint32_t other = __shfl_xor_sync(kWholeWarp, word, distance);
  return (LaneOfWarp() & distance) == 0 ? (word & kEven) | (other & kEven) << kWidth
                                        : (word & ~kEven) | (other & ~kEven) >> kWidth;
}

// Decides dropout for the elements of a lane: bit 4 j + e of the result is 1 if element e of fragment j is kept. `first_row`:
// the number of the head's first query among the queries of all heads of the sample, on all ranks.
//
// If a row has a multiple of four keys, no four keys that begin at a multiple of four are in two blocks of random words. Then a
// lane draws one block for each j. Four lanes (two, if the queries are the block's own rows) together draw what they need, and
// exchange it.
template <OwnRows kOwn, int kOthers>
__device__ uint32_t KeptBits(const Dropout& dropout, int64_t sample, int64_t first_row, const MmaPlace<kOwn, kOthers>& at) {
  static_assert(kOthers <= 64);
  uint32_t kept = 0;
  if (at.s % 4 != 0) {
#pragma unroll 1
    for (int i = 0; i < kOthers / 2; ++i) {
      const int64_t element = (first_row + at.Query(i / 4, i % 4)) * at.s + at.Key(i / 4, i % 4);
      kept |= uint32_t{dropout.Keeps(sample, element)} << i;
    }
    return kept;
  }
  constexpr bool kQueries = kOwn == OwnRows::kQueries;
  const int64_t row_blocks = at.s / 4;
  const int drawn = kQueries ? LaneOfWarp() % 2 : LaneOfWarp() / 4 % 4;
  const int query = kQueries ? at.Own(drawn) : at.Other(0, drawn), key = kQueries ? at.Other(0, 0) : at.Own(drawn / 2);
  int64_t block = (first_row + query) * row_blocks + key / 4;
#pragma unroll
  for (int j = 0; j < kOthers / 8; ++j) {
    kept |= dropout.KeepsFour(sample, block) << (4 * j);
    block += kQueries ? 2 : 8 * row_blocks;
  }
  if constexpr (kQueries) return ExchangeBits<2>(kept, 1);
  return ExchangeBits<2>(ExchangeBits<1>(kept, 4), 8);
}

__device__ inline bool IsKept(uint32_t kept, int j, int e) { return (kept >> (4 * j + e) & 1) != 0; }

// For each of a lane's two rows: the largest product m of the query and a key so far, and the lane's part of the sum of
// 2^(scale (product - m)) so far (see SoftmaxRows). The four lanes of a row hold the same m. `scale` is log2(e) / sqrt(d).
struct MmaSoftmax {
  float scale;
  float max[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum[2] = {};

  // Adds a tile: replaces the products by 2^(scale (product - m)), which is 0 if the product is -infinity. The caller must
  // multiply the partial result by `factors`.
  template <int kOthers>
  __device__ void TakeIn(WarpTile<kOthers>& tile, float factors[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = max[half];
#pragma unroll
      for (int j = 0; j < kOthers / 8; ++j) {
        largest = fmaxf(largest, fmaxf(tile.at[j].at[2 * half], tile.at[j].at[2 * half + 1]));
      }
      for (int distance = 2; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, distance));
      }
      factors[half] = PowerOfTwo((max[half] - largest) * scale);  // 0 for the first tile
      max[half] = largest;
      sum[half] *= factors[half];
      const float subtracted = largest * scale;
#pragma unroll
      for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          tile.at[j].at[e] = PowerOfTwo(tile.at[j].at[e] * scale - subtracted);
          sum[half] += tile.at[j].at[e];
        }
      }
    }
  }

  // Adds up the parts of the four lanes. Afterwards, nothing can be added.
  __device__ void Finish() {
    for (float& of_row : sum) of_row = ReduceLanes<Sum, 4>(of_row);
  }
  // Returns the log-sum-exp of the scores of a row, after Finish.
  __device__ float LogSumExp(int half) const { return max[half] * scale * kLn2 + logf(sum[half]); }
};

template <int kMost>
__global__ void __launch_bounds__(kMmaThreads)
    MmaForward(AttentionShape shape, const Bfloat16* qkv, MmaAccess access, Dropout dropout, Bfloat16* context, float* lse) {
  constexpr int kOthers = kMost <= 64 ? 64 : 32;
  using Places = LanePlaces<kMost>;
  // Two tiles of keys and values. Before the loop: the queries.
  __shared__ SharedRows<4 * kOthers, kMost> shared;
  const int s = static_cast<int>(shape.s), d = static_cast<int>(shape.d);
  const int first_query = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kOwnRows;  // the longest rows first
  const int64_t sample = blockIdx.x / shape.a, head = blockIdx.x % shape.a;
  const HeadRows<const Bfloat16> in(qkv, shape, sample, head);
  TileCopies<kMost, kOwnRows>(in.q.From(first_query), d, access.eights).Begin(s - first_query, shared.at);
  WaitForCopies();
  __syncthreads();
  const OwnInRegisters<kMost> queries(shared.at);
  __syncthreads();  // all threads have read the queries
  TileCopies<kMost, kOthers> keys(in.k, d, access.eights), values(in.v, d, access.eights);
  const auto fetch = [&](int first_key, int stage) {
    keys.Begin(s - first_key, shared.at + stage * 2 * kOthers);
    values.Begin(s - first_key, shared.at + stage * 2 * kOthers + kOthers);
    keys.Advance(kOthers * in.k.stride);
    values.Advance(kOthers * in.v.stride);
  };
  MmaPlace<OwnRows::kQueries, kOthers> at{s, first_query + WarpOfBlock() * 16, 0};
  MmaSoftmax softmax{kLog2E / sqrtf(static_cast<float>(d))};
  WarpRows<kMost> sum;
  const int end = s < first_query + kOwnRows ? s : first_query + kOwnRows;
  fetch(0, 0);
  for (int stage = 0; at.first_other < end; at.first_other += kOthers, stage ^= 1) {
    WaitForCopies();
    __syncthreads();  // the tile is there, and all threads have read the tile before it
    if (at.first_other + kOthers < end) fetch(at.first_other + kOthers, stage ^ 1);
    if (at.AllHidden()) continue;
    const SharedAddress tile = AddressOf(shared.at[stage * 2 * kOthers]);
    auto probs = OwnTimesOthers<kMost, kOthers>(queries, tile + Places::Turned());
    if (!at.AllVisible()) at.Hide(probs);
    float factors[2];
    softmax.TakeIn(probs, factors);
    // Most tiles do not have the largest score of any row.
    if (__ballot_sync(kWholeWarp, factors[0] != 1.0f || factors[1] != 1.0f) != 0) sum.Scale(factors);
    if (dropout.threshold != 0) {
      const uint32_t kept = KeptBits(dropout, sample, (shape.first_head + head) * s, at);
#pragma unroll
      for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) probs.at[j].at[e] = IsKept(kept, j, e) ? probs.at[j].at[e] : 0.0f;
      }
    }
    sum.Add(probs, tile + Places::At(kOthers, 0) + Places::Straight());
  }
  softmax.Finish();
  const float scales[2] = {dropout.keep_factor / softmax.sum[0], dropout.keep_factor / softmax.sum[1]};
  sum.Store(ContextRows(context, shape, sample, head).From(first_query), d, access.pairs, scales);
  for (int half = 0; half < 2; ++half) {
    if (LaneOfWarp() % 4 == 0 && at.Own(half) < s) {
      lse[(sample * shape.a + head) * s + at.Own(half)] = softmax.LogSumExp(half);
    }
  }
}

// What a lane needs of the queries of its elements: log2(e) times the log-sum-exps, and the row sums. If the queries are the
// block's own rows, these are the lane's two rows; otherwise they are two columns of each fragment.
template <int kCount>
struct QueryNumbers {
  float lse[kCount], row_sums[kCount];

  // Loads the numbers of the lane's columns of a tile, as OtherRows::Begin wrote them.
  __device__ void Load(const float (*numbers)[4 * kCount]) {
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      const int column = j * 8 + LaneOfWarp() % 4 * 2;
      const auto of_lse = Pack<float, 2>::Load(&numbers[0][column]), of_sums = Pack<float, 2>::Load(&numbers[1][column]);
      for (int e = 0; e < 2; ++e) {
        lse[2 * j + e] = of_lse.at[e] * kLog2E;
        row_sums[2 * j + e] = of_sums.at[e];
      }
    }
  }
};

// Computes the two matrices of a TileGradient, for tiles of one warp: replaces the products by dS, and dprobs (dP without
// dropout) by P M without the factor of what is kept.
template <bool kDrops, OwnRows kOwn, int kOthers, int kCount>
__device__ void MakeGradients(float scale, const QueryNumbers<kCount>& queries, float keep_factor, uint32_t kept,
                              WarpTile<kOthers>& products, WarpTile<kOthers>& dprobs) {
#pragma unroll
  for (int j = 0; j < kOthers / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int query = kOwn == OwnRows::kQueries ? e / 2 : 2 * j + e % 2;
      float &product = products.at[j].at[e], &dprob = dprobs.at[j].at[e];
      const float prob = PowerOfTwo(product * scale - queries.lse[query]);
      const bool keeps = !kDrops || IsKept(kept, j, e);
      product = prob * ((keeps ? dprob : 0.0f) * keep_factor - queries.row_sums[query]);
      dprob = keeps ? prob : 0.0f;
    }
  }
}

// The sizes of the tiles of a gradient kernel.
template <int kMost, OwnRows kOwn>
struct GradientTiles {
  static constexpr int kOthers = kOwn == OwnRows::kQueries ? (kMost <= 64 ? 64 : 32) : (kMost <= 96 ? 32 : 16);
  // Rows in shared memory: two tiles of two matrices. Before the loop: the block's own rows of two matrices, of which the
  // second is at the end. It stays there if registers for it would spill.
  static constexpr bool kValuesStay = kOwn == OwnRows::kKeys && kMost > 64;
  static constexpr int kRows = 4 * kOthers + (kValuesStay ? kOwnRows : 0);
  static_assert(kRows >= 2 * kOwnRows);
  using OwnValues = std::conditional_t<kValuesStay, OwnInShared<kMost>, OwnInRegisters<kMost>>;
};

// The other rows that a block loops over: the tiles from `begin` to `end` of one head, then those of the next head.
template <int kOthers>
struct TileCursor {
  int begin, end, first, head = 0;  // head: counted from the block's first head

  __device__ TileCursor(int begin, int end) : begin(begin), end(end), first(begin) {}
  __device__ bool LastOfHead() const { return first + kOthers >= end; }
  __device__ int Tiles() const { return (end - begin + kOthers - 1) / kOthers; }  // the tiles of a head
  __device__ void Next() {
    head += LastOfHead() ? 1 : 0;
    first = LastOfHead() ? begin : first + kOthers;
  }
};

// Copies the tiles of the other rows that a block loops over: k and v, or q and dC. If the rows are queries, also copies their
// log-sum-exps and row sums.
template <int kMost, OwnRows kOwn, int kOthers>
class OtherRows {
 public:
  // `rows`, `values`, `lse` and `row_sums` are those of the block's first head.
  __device__ OtherRows(const TileCursor<kOthers>& first, RowsOf<const Bfloat16> rows, RowsOf<const Bfloat16> values,
                       const float* lse, const float* row_sums, int d, bool eights)
      : rows_(rows.From(first.first), d, eights),
        values_(values.From(first.first), d, eights), steps_{kOthers * static_cast<int>(rows.stride),
                                                             kOthers * static_cast<int>(values.stride)},
        lse_(lse), row_sums_(row_sums), d_(d), s_(static_cast<int>(rows.rows)) {}

  // Begins to copy the tile at the cursor, which must be the tile after that of the call before. `numbers`: in shared memory.
  __device__ void Begin(const TileCursor<kOthers>& at, Bfloat16 (*to)[kMost + 8], float (*numbers)[kOthers]) {
    rows_.Begin(s_ - at.first, to);
    values_.Begin(s_ - at.first, to + kOthers);
    rows_.Advance(steps_[0]);
    values_.Advance(steps_[1]);
    if constexpr (kOwn == OwnRows::kKeys) {
      const int query = static_cast<int>(threadIdx.x);
      if (query < kOthers) {
        const int64_t row = int64_t{at.head} * s_ + at.first + query;
        BeginCopy<4>(lse_ + row, at.first + query < s_, AddressOf(&numbers[0][query]));
        BeginCopy<4>(row_sums_ + row, at.first + query < s_, AddressOf(&numbers[1][query]));
      }
      if (!at.LastOfHead()) return;
      rows_.Advance(d_ - int64_t{at.Tiles()} * steps_[0]);
      values_.Advance(d_ - int64_t{at.Tiles()} * steps_[1]);
    }
  }

 private:
  TileCopies<kMost, kOthers> rows_, values_;
  int steps_[2];  // elements from a tile to the next
  const float *lse_, *row_sums_;
  int d_, s_;
};

// Computes dQ of the block's queries, or dK and dV of its keys. If heads share keys, their gradients are added in the order of
// heads.
template <int kMost, OwnRows kOwn>
__global__ void __launch_bounds__(kMmaThreads) MmaGradient(GradientArgs<Bfloat16> args, const float* lse, MmaAccess access) {
  constexpr bool kQueries = kOwn == OwnRows::kQueries;
  using Tiles = GradientTiles<kMost, kOwn>;
  constexpr int kOthers = Tiles::kOthers;
  using Places = LanePlaces<kMost>;
  __shared__ SharedRows<Tiles::kRows, kMost> shared;
  alignas(8) __shared__ float numbers[2][2][kOthers];
  const AttentionShape& shape = args.shape;
  const int s = static_cast<int>(shape.s), d = static_cast<int>(shape.d);
  const int first_own = static_cast<int>(kQueries ? gridDim.y - 1 - blockIdx.y : blockIdx.y) * kOwnRows;  // the longest first
  const int sharing = kQueries ? 1 : static_cast<int>(shape.a / shape.k);
  const int64_t heads = kQueries ? shape.a : shape.k;
  const int64_t sample = blockIdx.x / heads, first_head = blockIdx.x % heads * sharing,
                first_row = (sample * shape.a + first_head) * s;
  const HeadRows<const Bfloat16> in(args.qkv, shape, sample, first_head);
  const RowsOf<const Bfloat16> dout = ContextRows(args.dcontext, shape, sample, first_head);
  TileCopies<kMost, kOwnRows>((kQueries ? in.q : in.k).From(first_own), d, access.eights).Begin(s - first_own, shared.at);
  TileCopies<kMost, kOwnRows>((kQueries ? dout : in.v).From(first_own), d, access.eights)
      .Begin(s - first_own, shared.at + Tiles::kRows - kOwnRows);
  WaitForCopies();
  __syncthreads();
  const OwnInRegisters<kMost> own(shared.at);
  const typename Tiles::OwnValues own_values(shared.at + Tiles::kRows - kOwnRows);
  __syncthreads();  // all threads have read their own rows
  MmaPlace<kOwn, kOthers> at{s, first_own + WarpOfBlock() * 16, 0};
  QueryNumbers<kQueries ? 2 : kOthers / 4> queries;
  if constexpr (kQueries) {
    for (int half = 0; half < 2; ++half) {
      const bool exists = at.Own(half) < s;
      queries.lse[half] = exists ? lse[first_row + at.Own(half)] * kLog2E : 0.0f;
      queries.row_sums[half] = exists ? args.row_sums[first_row + at.Own(half)] : 0.0f;
    }
  }
  const float scale = 1.0f / sqrtf(static_cast<float>(d));
  WarpRows<kMost> sum, values_sum;
  const int begin = kQueries ? 0 : first_own, end = kQueries && first_own + kOwnRows < s ? first_own + kOwnRows : s;
  TileCursor<kOthers> tile(begin, end), next = tile;
  OtherRows<kMost, kOwn, kOthers> others(tile, kQueries ? in.k : in.q, kQueries ? in.v : dout, lse + first_row,
                                         args.row_sums + first_row, d, access.eights);
  others.Begin(tile, shared.at, numbers[0]);
  for (int stage = 0; tile.head < sharing; tile = next, stage ^= 1) {
    WaitForCopies();
    __syncthreads();  // the tile is there, and all threads have read the tile before it
    next.Next();
    if (next.head < sharing) others.Begin(next, shared.at + (stage ^ 1) * 2 * kOthers, numbers[stage ^ 1]);
    at.first_other = tile.first;
    if (at.AllHidden()) continue;
    const SharedAddress rows = AddressOf(shared.at[stage * 2 * kOthers]), values = rows + Places::At(kOthers, 0);
    auto scores = OwnTimesOthers<kMost, kOthers>(own, rows + Places::Turned());
    auto dprobs = OwnTimesOthers<kMost, kOthers>(own_values, values + Places::Turned());
    if (!at.AllVisible()) at.Hide(scores);
    if constexpr (!kQueries) queries.Load(numbers[stage]);
    if (args.dropout.threshold == 0) {
      MakeGradients<false, kOwn>(scale * kLog2E, queries, 1.0f, 0, scores, dprobs);
    } else {
      const uint32_t kept = KeptBits(args.dropout, sample, (shape.first_head + first_head + tile.head) * s, at);
      MakeGradients<true, kOwn>(scale * kLog2E, queries, args.dropout.keep_factor, kept, scores, dprobs);
    }
    sum.Add(scores, rows + Places::Straight());
    if constexpr (!kQueries) values_sum.Add(dprobs, values + Places::Straight());
  }
  const HeadRows<Bfloat16> out(args.dqkv, shape, sample, first_head);
  const float scales[2] = {scale, scale}, value_scales[2] = {args.dropout.keep_factor, args.dropout.keep_factor};
  sum.Store((kQueries ? out.q : out.k).From(first_own), d, access.pairs, scales);
  if constexpr (!kQueries) values_sum.Store(out.v.From(first_own), d, access.pairs, value_scales);
}

// A device starts the blocks of one y after those of another. So the longest blocks of all heads start before shorter ones.
inline dim3 MmaGrid(const AttentionShape& shape, int64_t heads) {
  return dim3(BlocksOf(heads * shape.b, 1), BlocksOf(shape.s, kOwnRows));
}

// Calls launch(std::integral_constant<int, kMost>) with the smallest kMost >= d for which kernels exist.
template <class Launch>
void ForMmaHeadSize(int64_t d, const Launch& launch) {
  if (d <= 64) return launch(std::integral_constant<int, 64>());
  if (d <= 96) return launch(std::integral_constant<int, 96>());
  launch(std::integral_constant<int, kMaxMmaHeadSize>());
}

inline void LaunchMmaForward(Stream& stream, const AttentionShape& shape, const Bfloat16* qkv, const Dropout& dropout,
                             Bfloat16* context, float* lse) {
  ForMmaHeadSize(shape.d, [&](auto most) {
    stream.Launch("fused attention", &MmaForward<decltype(most)::value>, MmaGrid(shape, shape.a), dim3(kMmaThreads), shape, qkv,
                  MmaAccess::Of(shape.d, context, qkv), dropout, context, lse);
  });
}

// Computes dqkv. args.row_sums must have been computed before.
inline void LaunchMmaGradients(Stream& stream, const GradientArgs<Bfloat16>& args, const float* lse) {
  const MmaAccess access = MmaAccess::Of(args.shape.d, args.dqkv, args.qkv, args.dcontext);
  ForMmaHeadSize(args.shape.d, [&](auto most) {
    constexpr int kMost = decltype(most)::value;
    stream.Launch("attention backward, queries", &MmaGradient<kMost, OwnRows::kQueries>, MmaGrid(args.shape, args.shape.a),
                  dim3(kMmaThreads), args, lse, access);
    stream.Launch("attention backward, keys", &MmaGradient<kMost, OwnRows::kKeys>, MmaGrid(args.shape, args.shape.k),
                  dim3(kMmaThreads), args, lse, access);
  });
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_ATTENTION_MMA_CUH_

// The normal numbers from which weights begin. Pure; thread-safe.
#ifndef LYNX_WORKER_MODEL_NORMAL_NUMBERS_H_
#define LYNX_WORKER_MODEL_NORMAL_NUMBERS_H_

#include <cstdint>
#include <functional>
#include <span>

namespace lynx::worker {

// Sets out[i] = deviation * (number `first + i` of the stream of normal numbers with the key `key`).
void FillNormal(uint64_t key, double deviation, int64_t first, std::span<float> out);

// Calls body(begin, end) for parts that cover [0, rows), at the same time on the cores that this thread may use. `numbers`: how
// many normal numbers all parts together have.
void InParts(int64_t rows, int64_t numbers, const std::function<void(int64_t, int64_t)>& body);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_MODEL_NORMAL_NUMBERS_H_

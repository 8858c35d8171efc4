// Elements says where the elements of a transfer are, and which type they have. A pointer to elements converts to it. Plain
// values.
#ifndef LYNX_WORKER_COLLECTIVES_ELEMENTS_H_
#define LYNX_WORKER_COLLECTIVES_ELEMENTS_H_

#include <cstdint>

#include "common/bfloat16.h"
#include "planner/problem/job_spec.h"

namespace lynx::worker {

constexpr int64_t ElementBytes(DataType type) { return type == DataType::kBfloat16 ? 2 : 4; }

struct Elements {
  void* data = nullptr;
  DataType type = DataType::kFloat32;

  Elements() = default;
  Elements(void* data, DataType type) : data(data), type(type) {}
  Elements(float* data) : data(data), type(DataType::kFloat32) {}
  Elements(Bfloat16* data) : data(data), type(DataType::kBfloat16) {}

  // Returns the elements from number `count` on.
  Elements operator+(int64_t count) const { return {static_cast<char*>(data) + count * ElementBytes(type), type}; }
};

// Like Elements, but for elements that are only read.
struct ConstElements {
  const void* data = nullptr;
  DataType type = DataType::kFloat32;

  ConstElements(const float* data) : data(data), type(DataType::kFloat32) {}
  ConstElements(const Bfloat16* data) : data(data), type(DataType::kBfloat16) {}
  ConstElements(const Elements& elements) : data(elements.data), type(elements.type) {}
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_ELEMENTS_H_

#include "worker/rank/check/check_device.h"

#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/bfloat16.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/status.h"
#include "worker/backend/host_view.h"

namespace lynx::worker {
namespace {

constexpr Nanos kDuration{100'000'000};
constexpr int32_t kCpuSize = 256, kGpuSize = 1024;
constexpr int kMatrices = 3;
// Row i of the left factor equals row i + kRowPeriod, and row i of the right factor equals row i + kColumnPeriod. So the
// product's rows and columns repeat with these periods. The periods are small, so that all values can be computed beforehand.
// They have no common divisor with the sizes by which devices divide their work.
constexpr int64_t kRowPeriod = 61, kColumnPeriod = 53;
// The largest whole number in the factors. bfloat16 represents all whole numbers up to it exactly. So does the shortest format
// that devices use inside a product of float32 matrices.
constexpr int64_t kLargest = 31;
static_assert(kLargest * kLargest * kMaxCheckedProduct < (1 << 24));

// Returns one factor of a matrix product, as `period` rows of `size` values. The left and the right factor use different values
// of `first`, so that their values differ.
std::vector<float> FactorRows(int64_t first, int64_t period, int64_t size) {
  std::vector<float> rows(static_cast<size_t>(period * size));
  for (int64_t row = 0; row < period; ++row) {
    for (int64_t k = 0; k < size; ++k) {
      const int64_t value = ((first + row) * 37 + k * 11 + k / 8 * (first + row + 5)) % (2 * kLargest + 1) - kLargest;
      rows[static_cast<size_t>(row * size + k)] = static_cast<float>(value);
    }
  }
  return rows;
}

// Returns the first kRowPeriod rows, each of `size` values, of the product left * right^T.
std::vector<float> ProductRows(const std::vector<float>& left, const std::vector<float>& right, int64_t size) {
  std::vector<float> rows(static_cast<size_t>(kRowPeriod * size));
  for (int64_t row = 0; row < kRowPeriod; ++row) {
    for (int64_t column = 0; column < size; ++column) {
      float sum = 0;  // a sum of whole numbers, below 2^24
      if (column >= kColumnPeriod) {
        sum = rows[static_cast<size_t>(row * size + column - kColumnPeriod)];
      } else {
        for (int64_t k = 0; k < size; ++k)
          sum += left[static_cast<size_t>(row * size + k)] * right[static_cast<size_t>(column * size + k)];
      }
      rows[static_cast<size_t>(row * size + column)] = sum;
    }
  }
  return rows;
}

uint32_t PatternWord(size_t index, uint32_t inverted) {
  return (static_cast<uint32_t>(index) * 2'654'435'761u ^ static_cast<uint32_t>(index >> 16)) ^ inverted;
}

// Sets every bit of the memory once to one and once to zero, and checks it each time.
absl::Status CheckMemory(std::span<float> memory, Backend& backend) {
  for (const uint32_t inverted : {0u, ~0u}) {
    HostView view(memory, backend);
    for (size_t i = 0; i < memory.size(); ++i) {
      const uint32_t word = PatternWord(i, inverted);
      std::memcpy(&view.floats()[i], &word, sizeof(word));
    }
    view.Store();
    LYNX_ASSIGN_OR_RETURN(HostView back, HostView::Fetch(memory, backend));
    for (size_t i = 0; i < memory.size(); ++i) {
      const auto found = std::bit_cast<uint32_t>(back.floats()[i]);
      if (found == PatternWord(i, inverted)) continue;
      return absl::DataLossError(absl::StrCat("memory of the device does not keep what is written: word ", i, " of ",
                                              memory.size(), " is 0x", absl::Hex(found, absl::kZeroPad8), ", not 0x",
                                              absl::Hex(PatternWord(i, inverted), absl::kZeroPad8)));
    }
  }
  return absl::OkStatus();
}

template <class Element>
void SetFactor(const std::vector<float>& rows, int64_t size, std::span<float> memory, Backend& backend) {
  HostView view(memory, backend);
  auto* const elements = reinterpret_cast<Element*>(view.floats().data());
  const int64_t count = static_cast<int64_t>(rows.size());
  for (int64_t i = 0; i < size * size; ++i) elements[i] = Element(rows[static_cast<size_t>(i % count)]);
  view.Store();
}

absl::Status Compare(std::span<const float> found, const std::vector<float>& rows, int64_t size, int product) {
  for (int64_t row = 0; row < size; ++row) {
    const float* const is = &found[static_cast<size_t>(row * size)];
    const float* const should = &rows[static_cast<size_t>(row % kRowPeriod * size)];
    if (std::memcmp(is, should, static_cast<size_t>(size) * sizeof(float)) == 0) continue;
    for (int64_t column = 0; column < size; ++column) {
      if (is[column] == should[column]) continue;  // compares values and not bits, because a zero may have a sign
      return absl::DataLossError(
          absl::StrFormat("the device computes wrongly: element (%d, %d) of the product of matrices of %d x %d is %.9g, "
                          "not %.9g, in product %d",
                          row, column, size, size, is[column], should[column], product + 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckProducts(const DeviceCheck& check, std::span<float> left, std::span<float> right, std::span<float> product,
                           Backend& backend) {
  const int64_t size = check.size;
  const std::vector<float> left_rows = FactorRows(0, kRowPeriod, size), right_rows = FactorRows(100, kColumnPeriod, size);
  const std::vector<float> rows = ProductRows(left_rows, right_rows, size);
  const bool narrow = check.type == DataType::kBfloat16;
  (narrow ? SetFactor<Bfloat16> : SetFactor<float>)(left_rows, size, left, backend);
  (narrow ? SetFactor<Bfloat16> : SetFactor<float>)(right_rows, size, right, backend);
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + check.duration;
  for (int i = 0; i < kLeastProducts || clock.Monotonic() < deadline; ++i) {
    backend.Fill(product.data(), size * size, -1.0f);  // overwrites the last result, so that it is not mistaken for a new one
    if (narrow) {
      backend.bfloat16().LogitsForward(reinterpret_cast<const Bfloat16*>(left.data()),
                                       reinterpret_cast<const Bfloat16*>(right.data()), size, size, size, product.data());
    } else {
      backend.LinearForward(left.data(), right.data(), nullptr, size, size, size, product.data());
    }
    LYNX_ASSIGN_OR_RETURN(HostView view, HostView::Fetch(product, backend));
    LYNX_RETURN_IF_ERROR(Compare(view.floats(), rows, size, i));
  }
  return absl::OkStatus();
}

}  // namespace

DeviceCheck DeviceCheckOf(const Backend& backend, DataType type) {
  return {.size = backend.host_addressable() ? kCpuSize : kGpuSize, .type = type, .duration = kDuration};
}

absl::Status CheckDevice(const DeviceCheck& check, Backend& backend) {
  LYNX_CHECK(check.size >= 1 && check.size <= kMaxCheckedProduct);
  const int64_t elements = int64_t{check.size} * check.size;
  LYNX_ASSIGN_OR_RETURN(
      const std::span<float> memory,
      backend.Allocate(Bytes(kMatrices * elements * static_cast<int64_t>(sizeof(float))), "the check of the device"));
  LYNX_RETURN_IF_ERROR(CheckMemory(memory, backend));
  const auto count = static_cast<size_t>(elements);
  return CheckProducts(check, memory.first(count), memory.subspan(count, count), memory.last(count), backend);
}

}  // namespace lynx::worker

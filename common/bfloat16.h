// A Bfloat16 in memory is a float without its low 16 bits. All arithmetic is done in float. Reading a value converts it to
// float, which is exact. Writing rounds a float to the nearest value, ties to even. Pure values.
#ifndef LYNX_COMMON_BFLOAT16_H_
#define LYNX_COMMON_BFLOAT16_H_

#include <bit>
#include <cstdint>

namespace lynx {

struct Bfloat16 {
  uint16_t bits;

  Bfloat16() = default;
  constexpr explicit Bfloat16(float value) : bits(Rounded(value)) {}
  constexpr Bfloat16& operator=(float value) {
    bits = Rounded(value);
    return *this;
  }
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

 private:
  // A NaN becomes a quiet NaN, with the part of its payload that fits. A value above the largest bfloat16 becomes infinite.
  static constexpr uint16_t Rounded(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const uint32_t nearest = word + 0x7fff + ((word >> 16) & 1);
    return static_cast<uint16_t>((value != value ? word | 0x400000 : nearest) >> 16);
  }
};

// The largest relative error that rounding makes, for values below the largest bfloat16. It is half the relative distance
// between neighbours.
inline constexpr double kBfloat16Rounding = 0x1p-8;

}  // namespace lynx

#endif  // LYNX_COMMON_BFLOAT16_H_

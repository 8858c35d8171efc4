// Bfloat16: a float without its low 16 bits, as stored in memory. All arithmetic is done in float: reading a value widens it,
// which is exact; writing rounds it to the nearest value, ties to even. Pure values.
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
  // A NaN stays a quiet NaN, with the part of the payload that fits. A value above the largest bfloat16 becomes infinite.
  static constexpr uint16_t Rounded(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const uint32_t nearest = word + 0x7fff + ((word >> 16) & 1);
    return static_cast<uint16_t>((value != value ? word | 0x400000 : nearest) >> 16);
  }
};

// Half the relative distance between neighbours: the largest relative error of rounding a value below the largest.
inline constexpr double kBfloat16Rounding = 0x1p-8;

}  // namespace lynx

#endif  // LYNX_COMMON_BFLOAT16_H_

// Bfloat16: a float of which the low 16 bits are dropped, as memory holds it. All arithmetic is float's: values widen
// where they are read, which is exact, and round to the nearest where they are written, ties to even. Pure values.
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
  // A NaN stays one, quiet, with the payload that fits; what is larger than the largest becomes infinite.
  static constexpr uint16_t Rounded(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const uint32_t nearest = word + 0x7fff + ((word >> 16) & 1);
    return static_cast<uint16_t>((value != value ? word | 0x400000 : nearest) >> 16);
  }
};

// Half the distance of neighbours, relative: a value below the largest is rounded with an error of at most so much of
// it.
inline constexpr double kBfloat16Rounding = 0x1p-8;

}  // namespace lynx

#endif  // LYNX_COMMON_BFLOAT16_H_

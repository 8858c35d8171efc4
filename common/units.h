// Bytes and Nanos are 64-bit integers of different types, so the compiler refuses to add a size to a time. Plain values;
// thread-safe like ints.
#ifndef LYNX_COMMON_UNITS_H_
#define LYNX_COMMON_UNITS_H_

#include <compare>
#include <cstdint>
#include <string>

namespace lynx {

template <class Tag>
struct Quantity {
  int64_t value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t v) : value(v) {}

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity operator+(Quantity o) const { return Quantity(value + o.value); }
  constexpr Quantity operator-(Quantity o) const { return Quantity(value - o.value); }
  constexpr Quantity operator-() const { return Quantity(-value); }
  constexpr Quantity operator*(int64_t k) const { return Quantity(value * k); }
  constexpr Quantity operator/(int64_t k) const { return Quantity(value / k); }
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
};

using Bytes = Quantity<struct BytesTag>;
using Nanos = Quantity<struct NanosTag>;

constexpr Bytes kKiB{1024};
constexpr Bytes kMiB{1024 * 1024};
constexpr Bytes kGiB{1024LL * 1024 * 1024};

constexpr double Seconds(Nanos t) { return static_cast<double>(t.value) * 1e-9; }
constexpr double Millis(Nanos t) { return static_cast<double>(t.value) * 1e-6; }
constexpr Nanos NanosFromSeconds(double s) { return Nanos(static_cast<int64_t>(s * 1e9)); }

// Text such as "812 B", "3.1 KiB", "24.0 MiB" or "1.2 GiB": binary units, one decimal.
std::string FormatBytes(Bytes bytes);
// Text such as "950 ns", "12.3 us", "4.5 ms", "1.20 s", "2m05s" or "3h07m".
std::string FormatDuration(Nanos duration);

}  // namespace lynx

#endif  // LYNX_COMMON_UNITS_H_

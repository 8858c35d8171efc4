// The names of enums. Each enum has one table, and all enums share one printer and one parser.
//
// An enum whose values count from 0 gets its names right after its declaration, in the order of its values:
//
//   enum class Choice : uint8_t { kAuto, kOff, kOn };
//   template <>
//   inline constexpr auto kEnumNames<Choice> = EnumTable("auto", "off", "on");
//
// Pure; thread-safe.
#ifndef LYNX_COMMON_ENUM_NAMES_H_
#define LYNX_COMMON_ENUM_NAMES_H_

#include <array>
#include <cstddef>
#include <string_view>

namespace lynx {

template <class... Names>
constexpr std::array<const char*, sizeof...(Names)> EnumTable(Names... names) {
  return {names...};
}

// If an enum has no table, it has no names, and code that prints or parses it does not compile.
template <class Enum>
inline constexpr std::array<const char*, 0> kEnumNames = {};

// `value` must be one of the enum's values.
template <class Enum>
constexpr const char* EnumName(Enum value) {
  static_assert(!kEnumNames<Enum>.empty(), "the enum has no table of names");
  return kEnumNames<Enum>.at(static_cast<size_t>(value));
}

// Sets `value` to the value with this name. Returns false, and leaves `value` as it is, if no value has this name.
template <class Enum>
constexpr bool ParseEnum(std::string_view name, Enum& value) {
  static_assert(!kEnumNames<Enum>.empty(), "the enum has no table of names");
  for (size_t i = 0; i < kEnumNames<Enum>.size(); ++i) {
    if (name != kEnumNames<Enum>[i]) continue;
    value = static_cast<Enum>(i);
    return true;
  }
  return false;
}

}  // namespace lynx

#endif  // LYNX_COMMON_ENUM_NAMES_H_

// Converts real numbers to text that can be read back exactly. Pure; thread-safe.
#ifndef LYNX_COMMON_REAL_TEXT_H_
#define LYNX_COMMON_REAL_TEXT_H_

#include <string>

namespace lynx {

// The shortest text that reads back as the same number, such as "0.1", "1e-08", "3.0517578125e-05".
std::string RealText(double value);

}  // namespace lynx

#endif  // LYNX_COMMON_REAL_TEXT_H_

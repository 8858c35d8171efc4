// The version of this software, as every binary prints it for --version and reports it to its peers.
#ifndef LYNX_COMMON_VERSION_H_
#define LYNX_COMMON_VERSION_H_

namespace lynx {

extern const char* const kVersion;  // "0.1.0": the project's version in CMakeLists.txt

}  // namespace lynx

#endif  // LYNX_COMMON_VERSION_H_

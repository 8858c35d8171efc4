// The version of this software. Every binary prints it for --version and reports it to its peers.
#ifndef LYNX_COMMON_VERSION_H_
#define LYNX_COMMON_VERSION_H_

namespace lynx {

extern const char* const kVersion;  // such as "0.1.0"; CMakeLists.txt sets it

}  // namespace lynx

#endif  // LYNX_COMMON_VERSION_H_

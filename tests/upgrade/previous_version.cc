// The version of daemons that play the previous minor release. It is linked instead of common/version.cc.
#include "common/version.h"

namespace lynx {

const char* const kVersion = LYNX_PREVIOUS_VERSION;

}  // namespace lynx

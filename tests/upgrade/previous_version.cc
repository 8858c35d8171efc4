// The version of the daemons that represent the previous minor release. It is linked in place of common/version.cc.
#include "common/version.h"

namespace lynx {

const char* const kVersion = LYNX_PREVIOUS_VERSION;

}  // namespace lynx

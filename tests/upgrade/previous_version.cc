// The version of the daemons that stand for the previous minor release: linked in the place of common/version.cc.
#include "common/version.h"

namespace lynx {

const char* const kVersion = LYNX_PREVIOUS_VERSION;

}  // namespace lynx

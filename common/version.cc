#include "common/version.h"

namespace lynx {

const char* const kVersion = LYNX_VERSION;

}  // namespace lynx

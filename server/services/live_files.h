// The content of the files in server/page/, which the build compiles into the program. Pure; thread-safe.
#ifndef LYNX_SERVER_SERVICES_LIVE_FILES_H_
#define LYNX_SERVER_SERVICES_LIVE_FILES_H_

#include <string_view>

namespace lynx::server {

std::string_view LivePageHtml();
std::string_view LivePageStyle();  // to be placed after PageStyle
std::string_view LivePageScript();

}  // namespace lynx::server

#endif  // LYNX_SERVER_SERVICES_LIVE_FILES_H_

# Writes the files of the live page as a C++ source. The build runs it: cmake -DSOURCE=folder -DOUTPUT=live_files.cc -P
# EmbedLivePage.cmake
set(code "// Made from server/page/ by cmake/EmbedLivePage.cmake.\n#include \"server/services/live_views.h\"\n\nnamespace lynx::server {\n\n")
foreach(part Html:page.html Style:page.css Script:page.js)
  string(REPLACE ":" ";" pair ${part})
  list(GET pair 0 name)
  list(GET pair 1 file)
  file(READ ${SOURCE}/${file} text)
  string(APPEND code "std::string_view LivePage${name}() {\n  return R\"lynx_page(${text})lynx_page\";\n}\n\n")
endforeach()
string(APPEND code "}  // namespace lynx::server\n")
file(WRITE ${OUTPUT} "${code}")

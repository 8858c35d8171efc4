# Writes files as a C++ source with a function that lists them (studio/files.h). The build runs it: cmake -DFILES=a;b
# -DFUNCTION=name -DHEADER=path -DOUTPUT=path -P EmbedFiles.cmake
set(rows "")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND rows "      {\"${name}\", R\"lynx_file(${text})lynx_file\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/EmbedFiles.cmake.\n#include \"${HEADER}\"\n\nnamespace lynx {\n\n"
     "const std::vector<EmbeddedFile>& ${FUNCTION}() {\n  static const auto* files = new std::vector<EmbeddedFile>{\n${rows}  };\n"
     "  return *files;\n}\n\n}  // namespace lynx\n")

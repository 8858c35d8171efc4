// Files that the build compiles in: those of studio/page/, and the cluster files of examples/clusters/, because the studio is
// used where the examples are not installed. Pure; thread-safe.
#ifndef LYNX_STUDIO_FILES_H_
#define LYNX_STUDIO_FILES_H_

#include <string_view>
#include <vector>

namespace lynx {

struct EmbeddedFile {
  std::string_view name;  // without folders
  std::string_view text;
};

// By name: "studio.css", "studio.html", ...
const std::vector<EmbeddedFile>& StudioPageFiles();
// By name: "a10g.yaml", ...
const std::vector<EmbeddedFile>& StudioMachineFiles();

}  // namespace lynx

#endif  // LYNX_STUDIO_FILES_H_

#include "cli/connect/submission.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lynx::cli {

std::string FreshKey() {
  std::random_device device;
  return absl::StrFormat("cli-%08x%08x%08x%08x", device(), device(), device(), device());
}

std::string SubmittedText(const std::string& job, bool existed) {
  return absl::StrCat("job ", job, existed ? " was submitted before with this key" : " submitted",
                      "; follow it with: lynxctl watch ", job, "\n");
}

}  // namespace lynx::cli

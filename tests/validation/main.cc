// lynx_validate SOURCE_DIR FILE: writes docs/validation.md.
#include <fstream>
#include <iostream>

#include "tests/validation/report.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: lynx_validate SOURCE_DIR FILE\n";
    return 2;
  }
  const absl::StatusOr<std::string> report = lynx::validation::ValidationReport(argv[1]);
  if (!report.ok()) {
    std::cerr << report.status().message() << "\n";
    return 1;
  }
  std::ofstream out(argv[2]);
  out << *report;
  out.close();
  if (out) return 0;
  std::cerr << argv[2] << " cannot be written\n";
  return 1;
}

// lynx_compare_figure SOURCE_DIR DOCS_DIR: writes comparison.md and its figures. It uses all cores to compute the settings.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <thread>

#include "tests/comparison/figures.h"
#include "tests/comparison/page.h"

namespace lynx::comparison {
namespace {

// Returns the curves in the order of Settings(). Prints its progress on standard error.
absl::StatusOr<std::vector<Curve>> AllCurves(const std::string& source_dir) {
  const std::vector<Setting>& settings = Settings();
  std::vector<std::optional<absl::StatusOr<Curve>>> results(settings.size());
  std::atomic<size_t> next = 0, done = 0;
  const auto work = [&] {
    for (size_t i = next++; i < settings.size(); i = next++) {
      results[i] = CurveOf(source_dir, settings[i], Shares());
      std::cerr << "\r" << ++done << " of " << settings.size() << std::flush;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  std::cerr << "\n";
  std::vector<Curve> curves;
  for (auto& result : results) {
    if (!result->ok()) return result->status();
    curves.push_back(**std::move(result));
  }
  return curves;
}

bool Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) std::cerr << path << " cannot be written\n";
  return out.good();
}

int Run(const std::string& source_dir, const std::string& docs) {
  const absl::StatusOr<std::vector<Curve>> curves = AllCurves(source_dir);
  if (!curves.ok()) {
    std::cerr << curves.status().message() << "\n";
    return 1;
  }
  bool written =
      Write(docs + "/comparison.md", ComparisonPage(*curves)) && Write(docs + "/" + kSpeedupFigureName, SpeedupFigure(*curves));
  std::string last;
  for (const Curve& curve : *curves) {
    const std::string& cluster = curve.setting.cluster;
    if (cluster == last) continue;
    last = cluster;
    written = written && Write(docs + "/" + MemoryFigureName(cluster), MemoryFigure(cluster, *curves));
  }
  return written ? 0 : 1;
}

}  // namespace
}  // namespace lynx::comparison

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: lynx_compare_figure SOURCE_DIR DOCS_DIR\n";
    return 2;
  }
  return lynx::comparison::Run(argv[1], argv[2]);
}

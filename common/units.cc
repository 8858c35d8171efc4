#include "common/units.h"

#include <cstdio>

namespace lynx {
namespace {

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string FormatBytes(Bytes bytes) {
  if (bytes.value < 0) return "-" + FormatBytes(-bytes);
  const double v = static_cast<double>(bytes.value);
  if (bytes < kKiB) return Format("%.0f B", v);
  if (bytes < kMiB) return Format("%.1f KiB", v / 1024);
  if (bytes < kGiB) return Format("%.1f MiB", v / kMiB.value);
  return Format("%.1f GiB", v / kGiB.value);
}

std::string FormatDuration(Nanos duration) {
  if (duration.value < 0) return "-" + FormatDuration(-duration);
  const double ns = static_cast<double>(duration.value);
  if (ns < 1e3) return Format("%.0f ns", ns);
  if (ns < 1e6) return Format("%.1f us", ns / 1e3);
  if (ns < 1e9) return Format("%.1f ms", ns / 1e6);
  if (ns < 60e9) return Format("%.2f s", ns / 1e9);
  const int64_t seconds = duration.value / 1'000'000'000;
  char text[64];
  if (seconds < 3600) {
    std::snprintf(text, sizeof text, "%dm%02ds", static_cast<int>(seconds / 60), static_cast<int>(seconds % 60));
  } else {
    std::snprintf(text, sizeof text, "%dh%02dm", static_cast<int>(seconds / 3600), static_cast<int>(seconds / 60 % 60));
  }
  return text;
}

}  // namespace lynx

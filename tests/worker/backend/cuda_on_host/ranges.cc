#include <utility>

#include "common/check.h"
#include "nvtx3/nvToolsExt.h"

namespace {

thread_local std::vector<std::string> open, ended;

}  // namespace

int nvtxRangePushA(const char* name) {
  open.emplace_back(name);
  return static_cast<int>(open.size()) - 1;
}

int nvtxRangePop() {
  LYNX_CHECK(!open.empty());
  ended.push_back(std::move(open.back()));
  open.pop_back();
  return static_cast<int>(open.size());
}

namespace lynx::worker::cuda_on_host {

std::vector<std::string> TakeRanges() {
  LYNX_CHECK(open.empty());
  return std::exchange(ended, {});
}

}  // namespace lynx::worker::cuda_on_host

#include "cli/frameworks/megatron_layout.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

constexpr size_t kMaxSymbols = 100'000;
constexpr int kMaxNesting = 16;

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  // Returns the layout string with all repetitions written out.
  absl::StatusOr<std::string> Run() {
    std::string flat;
    LYNX_RETURN_IF_ERROR(Sequence(flat, 0));
    if (at_ < text_.size()) return Error("a ')' without '('");
    return flat;
  }

 private:
  absl::Status Error(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat("'", text_, "' at character ", at_ + 1, ": ", why));
  }

  absl::Status Sequence(std::string& flat, int nesting) {
    if (nesting > kMaxNesting) return Error("too many brackets inside one another");
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_++];
      if (c == ' ' || c == ',') continue;
      std::string item(1, c);
      if (c == '(') {
        item.clear();
        LYNX_RETURN_IF_ERROR(Sequence(item, nesting + 1));
        if (at_ >= text_.size()) return Error("a '(' is not closed");
        ++at_;
      } else if (c == 'm') {
        return Error("layers that predict several tokens (m) are not planned");
      } else if (c != 'E' && c != 't' && c != 'L' && c != '|') {
        return Error("expected E, t, L, | or (");
      }
      int32_t times = 1;
      if (at_ < text_.size() && text_[at_] == '*') LYNX_RETURN_IF_ERROR(Times(times));
      if (flat.size() + item.size() * static_cast<size_t>(times) > kMaxSymbols) return Error("too many layers");
      for (int32_t i = 0; i < times; ++i) flat += item;
    }
    return absl::OkStatus();
  }

  absl::Status Times(int32_t& times) {
    times = 0;
    ++at_;
    const size_t begin = at_;
    while (at_ < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_])) && at_ - begin < 6) {
      times = times * 10 + (text_[at_++] - '0');
    }
    return at_ == begin ? Error("expected a number after '*'") : absl::OkStatus();
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<int32_t>> LayersOfLayout(const std::string& layout) {
  LYNX_ASSIGN_OR_RETURN(const std::string flat, Parser(layout).Run());
  std::vector<int32_t> layers = {0};
  for (const char c : flat) {
    if (c == '|') layers.push_back(0);
    if (c == 't') ++layers.back();
  }
  return layers;
}

}  // namespace lynx::cli

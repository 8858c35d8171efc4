#include "worker/checkpoint/tensor_place.h"

#include <charconv>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx::worker {
namespace {

// The largest number that the text of a place may contain. The product of two such numbers does not overflow.
constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();

// Reads numbers and the characters between them from the beginning of a text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  int64_t Number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    ok_ = ok_ && error == std::errc() && value >= 0 && value <= kMaxExtent;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return ok_ ? value : 0;
  }
  void Character(char expected) {
    ok_ = ok_ && rest_.starts_with(expected);
    if (ok_) rest_.remove_prefix(1);
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

int64_t TensorPlace::elements() const {
  int64_t elements = 0;
  for (const ParameterPiece& piece : pieces) elements += piece.rows * piece.columns;
  return elements;
}

TensorPlace PlaceOf(const ParameterSlot& slot) {
  int64_t elements = 0;
  for (const ParameterPiece& piece : slot.pieces) {
    LYNX_CHECK(piece.offset == elements);
    elements += piece.rows * piece.columns;
  }
  return {slot.global_rows, slot.global_columns, slot.pieces};
}

TensorPlace WholePlace(int64_t rows, int64_t columns) { return {rows, columns, {{0, rows, 0, columns, 0}}}; }

std::string PlaceText(const TensorPlace& place) {
  std::string text = absl::StrCat(place.rows, "x", place.columns, ":");
  for (const ParameterPiece& piece : place.pieces) {
    absl::StrAppend(&text, " ", piece.row, "+", piece.rows, ",", piece.column, "+", piece.columns);
  }
  return text;
}

absl::StatusOr<TensorPlace> ParsePlace(const std::string& text) {
  Scanner scanner(text);
  TensorPlace place;
  place.rows = scanner.Number();
  scanner.Character('x');
  place.columns = scanner.Number();
  scanner.Character(':');
  bool inside = true;
  while (scanner.ok() && !scanner.at_end()) {
    ParameterPiece piece;
    piece.offset = place.elements();
    scanner.Character(' ');
    piece.row = scanner.Number();
    scanner.Character('+');
    piece.rows = scanner.Number();
    scanner.Character(',');
    piece.column = scanner.Number();
    scanner.Character('+');
    piece.columns = scanner.Number();
    inside = inside && piece.row + piece.rows <= place.rows && piece.column + piece.columns <= place.columns;
    place.pieces.push_back(piece);
  }
  if (scanner.ok() && inside) return place;
  return absl::DataLossError(absl::StrCat("\"", text, "\" names no pieces of a tensor"));
}

}  // namespace lynx::worker

#include "cli/spec/yaml_value.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/spec/yaml_mistake.h"
#include "common/utf8.h"

namespace lynx::cli {
namespace {

// The tags that the parser gives to unquoted and quoted values.
constexpr char kPlainTag[] = "?", kQuotedTag[] = "!";
constexpr char kByteOrderMark[] = "\xef\xbb\xbf";  // the parser does not count these bytes

// An error whose text already says what is wrong. All other errors of the parser go through ExplainYamlError.
class Refused : public YAML::ParserException {
 public:
  using YAML::ParserException::ParserException;
};

// Builds the tree from the parser's events. Throws Refused for valid YAML that is not accepted.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& text) : text_(text) {}
  YamlValue TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { Add(mark, anchor, "", YamlKind::kNull); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refused(mark, "aliases ('*name') are not taken here; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    if (tag == kPlainTag) {
      if (const std::optional<OddCharacter> odd = FindOddCharacter(value)) {
        YAML::Mark at = mark;
        at.column += static_cast<int>(odd->at);
        throw Refused(at, odd->why);
      }
    }
    // The position in the text. Block text has the tag of quoted text, but does not begin with a quote.
    const auto at = static_cast<size_t>(mark.pos) + (text_.starts_with(kByteOrderMark) ? sizeof(kByteOrderMark) - 1 : 0);
    if (tag == kQuotedTag && at < text_.size() && (text_[at] == '"' || text_[at] == '\'') && !QuoteCloses(text_, at)) {
      throw Refused(mark, absl::StrCat("the quote that opens here is not closed; write another ", text_.substr(at, 1),
                                       " at the end of the value"));
    }
    Add(mark, anchor, tag, YamlKind::kScalar).scalar = value;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Add(mark, anchor, tag, YamlKind::kList), mark);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    Open(Add(mark, anchor, tag, YamlKind::kMap), mark);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Container {
    YamlValue* value;
    bool awaits_value = false;  // for a map: the last entry has only a key so far
  };

  YamlValue& Add(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& tag, YamlKind kind) {
    if (anchor != 0) throw Refused(mark, "anchors ('&name') are not taken here");
    if (!tag.empty() && tag != kPlainTag && tag != kQuotedTag) throw Refused(mark, "tags ('!name') are not taken here");
    YamlValue& value = NewValue(mark, kind);
    value.kind = kind;
    value.line = mark.line + 1;
    value.column = mark.column + 1;
    return value;
  }

  YamlValue& NewValue(const YAML::Mark& mark, YamlKind kind) {
    if (open_.empty()) return root_;
    Container& container = open_.back();
    if (container.value->IsList()) return container.value->items.emplace_back();
    container.awaits_value = !container.awaits_value;
    if (!container.awaits_value) return container.value->entries.back().value;
    if (kind == YamlKind::kList || kind == YamlKind::kMap) {
      throw Refused(mark, "field names must be plain words");
    }
    return container.value->entries.emplace_back().key;
  }

  // open_ keeps pointers to the open values. They stay valid, because only the innermost open container grows.
  void Open(YamlValue& value, const YAML::Mark& mark) {
    if (open_.size() >= static_cast<size_t>(kMaxYamlDepth)) {
      throw Refused(mark, absl::StrCat("nested deeper than ", kMaxYamlDepth, " levels"));
    }
    open_.push_back({&value});
  }

  const std::string& text_;
  YamlValue root_;
  std::vector<Container> open_;
};

// Reads events and ignores them. Throws if a document begins where the previous one began. That happens if the next character,
// such as a comma, cannot begin a document: the parser never advances, and reports one empty document after another.
class DocumentCounter : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (mark.pos == last_) throw Refused(mark, "nothing can begin with this character");
    last_ = mark.pos;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int last_ = -1;
};

YamlMistake MistakeOf(const YAML::Exception& error) { return {error.mark.line + 1, error.mark.column + 1, error.msg}; }

absl::Status NotValid(const std::string& file, const YamlMistake& mistake) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ":", mistake.line, ":", mistake.column, ": not valid YAML: ", mistake.why));
}

}  // namespace

const YamlValue* YamlValue::Find(const std::string& key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key.IsScalar() && entry.key.scalar == key) return &entry.value;
  }
  return nullptr;
}

absl::StatusOr<YamlValue> ParseYaml(const std::string& text, const std::string& file) {
  if (text.size() > kMaxYamlBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": has ", text.size(), " bytes; at most ", kMaxYamlBytes, " are read"));
  }
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": is UTF-16; save it as UTF-8"));
  }
  if (text.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": holds a zero byte; it is not a text file"));
  }
  if (const size_t valid = ValidUtf8Prefix(text); valid < text.size()) {
    const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(valid), '\n') + 1;
    return absl::InvalidArgumentError(
        absl::StrCat(file, ":", line, ": byte ", valid + 1, " of the file is not UTF-8; save it in that encoding"));
  }
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    TreeBuilder builder(text);
    if (!parser.HandleNextDocument(builder)) return YamlValue();
    DocumentCounter rest;
    int documents = 1;
    while (parser.HandleNextDocument(rest)) ++documents;
    if (documents > 1) {
      return absl::InvalidArgumentError(absl::StrCat(file, ": holds ", documents, " documents; write one document a file"));
    }
    return builder.TakeRoot();
  } catch (const Refused& refused) {
    return NotValid(file, MistakeOf(refused));
  } catch (const YAML::Exception& error) {
    return NotValid(file, ExplainYamlError(text, MistakeOf(error)));
  }
}

}  // namespace lynx::cli

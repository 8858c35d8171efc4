#include "cli/spec/yaml_record.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/spec/yaml_mistake.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

std::string Joined(const std::string& section, const std::string& name) {
  return section.empty() ? name : absl::StrCat(section, ".", name);
}

bool Has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// The names directly below `section` ("" = the record itself) in the fields' paths.
template <class Bound>
std::vector<std::string> NamesBelow(const std::vector<Bound>& fields, const std::string& section) {
  std::vector<std::string> names;
  const std::string prefix = section.empty() ? "" : section + ".";
  for (const Bound& field : fields) {
    if (field.path->compare(0, prefix.size(), prefix) != 0) continue;
    const std::string rest = field.path->substr(prefix.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (!Has(names, name)) names.push_back(name);
  }
  return names;
}

constexpr size_t kMaxGuessedName = 64;

// ", found 'WORD'": what the file has where something else is expected.
std::string Found(const YamlValue& value) {
  switch (value.kind) {
    case YamlKind::kNull: return ", found nothing";
    case YamlKind::kList: return ", found a list";
    case YamlKind::kMap: return ", found fields";
    case YamlKind::kScalar: break;
  }
  return absl::StrCat(", found '", value.scalar, "'");
}

std::string ExpectedFields(const YamlValue& value, const std::vector<std::string>& names) {
  const std::string mended = value.IsScalar() ? WithBlankAfterColon(value.scalar) : "";
  return absl::StrCat("expected fields: ", absl::StrJoin(names, ", "), Found(value),
                      !mended.empty()  ? absl::StrCat("; a blank follows the colon: write '", mended, "'")
                      : value.IsList() ? "; write them without '- '"
                      : value.IsScalar()
                          ? ""
                          : "; write them on the lines below, two blanks further to the right than the section's name");
}

// Advice for a file of one kind that is used as a file of another kind.
std::string OtherFile(const std::string& wanted, const std::string& found) {
  if (wanted == "TrainingJob" && found == "Cluster") return "; this is a cluster file, which --cluster takes";
  if (wanted == "Cluster" && found == "TrainingJob") return "; this is a job file, which -f takes";
  return "";
}

// Advice for a field of `section` that is not one of the fields in `known`.
template <class Bound>
std::string WhereItBelongs(const std::string& name, const std::string& section, const std::vector<std::string>& known,
                           const std::vector<Bound>& fields) {
  if (const std::string mended = WithBlankAfterColon(name); !mended.empty()) {
    return absl::StrCat("; a blank follows the colon: write '", mended, "'");
  }
  for (const Bound& field : fields) {
    const std::string& path = *field.path;
    if (name.find('.') != std::string::npos && (path == name || path == Joined(section, name))) {
      return absl::StrCat("; write '", path.substr(0, path.rfind('.')),
                          ":' and, on the line below it and two blanks further to the right, '",
                          path.substr(path.rfind('.') + 1), ": VALUE'");
    }
    if (name == path || path.compare(0, name.size() + 1, name + ".") == 0) {
      const std::string outer = section.substr(0, section.find('.'));
      return absl::StrCat(" of '", section, "'; begin '", name, "' in the column in which '", outer, "' begins");
    }
  }
  std::vector<std::string> sections;
  for (const Bound& field : fields) {
    const size_t dot = field.path->rfind('.');
    if (dot != std::string::npos && field.path->substr(dot + 1) == name)
      sections.push_back(absl::StrCat("'", field.path->substr(0, dot), "'"));
  }
  if (sections.empty()) return DidYouMean(name, known);
  return absl::StrCat(" here; it belongs to ", absl::StrJoin(sections, " or "),
                      ": write it there, further to the right than the section's name");
}

}  // namespace

std::string DidYouMean(const std::string& name, const std::vector<std::string>& known) {
  std::vector<std::string> in_sections;
  for (const std::string& candidate : known) {
    if (candidate.ends_with("." + name)) in_sections.push_back(absl::StrCat("'", candidate, "'"));
  }
  if (!in_sections.empty()) return absl::StrCat("; did you mean ", absl::StrJoin(in_sections, " or "), "?");
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    if (name.size() > kMaxGuessedName) break;
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty()) return absl::StrCat("; did you mean '", best, "'?");
  return absl::StrCat("; known here: ", absl::StrJoin(known, ", "));
}

YamlReader::YamlReader(std::string file, Scalars scalars) : file_(std::move(file)), scalars_(scalars) {}

absl::Status YamlReader::Error(const YamlValue& at, const std::string& path, const std::string& message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_, ":", at.line, ":", at.column, ": ", path, path.empty() ? "" : ": ", message));
}

std::string YamlReader::PlaceOf(const std::string& path) const {
  for (const auto& [seen, place] : places_) {
    if (seen == path) return place;
  }
  return file_;
}

absl::Status YamlReader::CheckHeader(const YamlValue& root, const std::string& kind) {
  if (!root.IsMap()) return Error(root, "", absl::StrCat("expected a map that starts with 'apiVersion: lynx/v1'", Found(root)));
  LYNX_RETURN_IF_ERROR(CheckHeaderField(root, "apiVersion", "lynx/v1"));
  return CheckHeaderField(root, "kind", kind);
}

absl::Status YamlReader::CheckHeaderField(const YamlValue& root, const std::string& name, const std::string& wanted) const {
  const YamlValue* value = root.Find(name);
  if (value == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(file_, ": ", name, ": missing; write '", name, ": ", wanted, "'"));
  }
  if (value->IsScalar() && value->scalar == wanted) return absl::OkStatus();
  return Error(*value, name, absl::StrCat("expected '", wanted, "'", Found(*value), OtherFile(wanted, value->scalar)));
}

absl::Status YamlReader::CheckList(const YamlValue& list, const std::string& path, size_t least) const {
  if (!list.IsList()) return Error(list, path, absl::StrCat("expected a list ('- ' before each item)", Found(list)));
  if (list.items.size() < least) {
    return Error(list, path, absl::StrCat("has ", list.items.size(), " items; give at least ", least));
  }
  return absl::OkStatus();
}

absl::Status YamlReader::ReadRecord(const YamlValue& map, const std::string& path, std::vector<Bound> fields,
                                    const std::vector<std::string>& optional) {
  static const std::string* const kApiVersion = new std::string("apiVersion");
  static const std::string* const kKind = new std::string("kind");
  static const std::string* const kHeaderMeaning = new std::string();
  if (path.empty()) {  // CheckHeader has already read the fields of the header
    const auto ignore = [](const std::string&) { return absl::OkStatus(); };
    fields.insert(fields.begin(),
                  {Bound{kApiVersion, kHeaderMeaning, false, ignore}, Bound{kKind, kHeaderMeaning, false, ignore}});
  }
  Record record{path, std::move(fields)};
  if (!map.IsMap()) {
    return Error(map, path, ExpectedFields(map, NamesBelow(record.fields, "")));
  }
  LYNX_RETURN_IF_ERROR(ReadMap(map, "", record));
  for (const Bound& field : record.fields) {
    if (!field.required || Has(record.seen, *field.path) || Has(optional, *field.path)) continue;
    const std::string message = absl::StrCat("missing; it is required (", *field.meaning, ")");
    if (!path.empty()) return Error(map, Joined(path, *field.path), message);
    return absl::InvalidArgumentError(absl::StrCat(file_, ": ", *field.path, ": ", message));
  }
  return absl::OkStatus();
}

absl::Status YamlReader::ReadMap(const YamlValue& map, const std::string& section, Record& record) {
  const std::vector<std::string> known = NamesBelow(record.fields, section);
  for (const YamlEntry& entry : map.entries) {
    const std::string name = Joined(section, entry.key.scalar);
    const std::string path = Joined(record.path, name);
    if (!entry.key.IsScalar()) return Error(entry.key, Joined(record.path, section), "a field has no name");
    if (!Has(known, entry.key.scalar))
      return Error(entry.key, path, "unknown field" + WhereItBelongs(entry.key.scalar, section, known, record.fields));
    if (Has(record.seen, name))
      return Error(entry.key, path, absl::StrCat("given twice, the first at ", PlaceOf(path), "; keep one"));
    record.seen.push_back(name);
    places_.emplace_back(path, absl::StrCat(file_, ":", entry.value.line, ":", entry.value.column));
    LYNX_RETURN_IF_ERROR(ReadEntry(entry.value, name, record));
  }
  return absl::OkStatus();
}

absl::Status YamlReader::ReadEntry(const YamlValue& value, const std::string& name, Record& record) {
  const std::string path = Joined(record.path, name);
  const auto field = std::find_if(record.fields.begin(), record.fields.end(), [&](const Bound& f) { return *f.path == name; });
  const std::vector<std::string> below = NamesBelow(record.fields, name);
  const bool section = !below.empty();
  if (field != record.fields.end() && field->read_value) return field->read_value(value, path);
  if (field != record.fields.end() && (!section || value.IsScalar())) return ReadScalar(value, path, *field);
  if (!value.IsMap()) return Error(value, path, ExpectedFields(value, below));
  return ReadMap(value, name, record);
}

absl::Status YamlReader::ReadScalar(const YamlValue& value, const std::string& path, const Bound& field) {
  const YamlValue* text = &value;
  std::string source;
  if (scalars_ == Scalars::kSourced && value.IsMap()) {
    const YamlValue* stated = value.Find("value");
    const YamlValue* why = value.Find("source");
    const bool two = value.entries.size() == 2 && stated != nullptr && why != nullptr && why->IsScalar();
    if (!two) return Error(value, path, "expected one value, or {value: ..., source: \"where it comes from\"}");
    text = stated;
    source = why->scalar;
  }
  if (!text->IsScalar()) return Error(*text, path, absl::StrCat("expected one value (", *field.meaning, ")", Found(*text)));
  if (!field.meaning->empty()) sources_.push_back({path, text->scalar, source});  // the fields of the header have no source
  const absl::Status read = field.read(text->scalar);
  return read.ok() ? read : Error(*text, path, std::string(read.message()));
}

std::string NestedText(const std::vector<std::pair<std::string, std::string>>& paths_and_values, int indent) {
  std::string out;
  std::vector<std::string> open;  // the section of the previous line
  for (const auto& [path, value] : paths_and_values) {
    if (value.empty()) continue;
    std::vector<std::string> parts = absl::StrSplit(path, '.');
    const std::string name = parts.back();
    parts.pop_back();
    for (size_t depth = 0; depth < parts.size(); ++depth) {
      if (depth < open.size() && open[depth] == parts[depth]) continue;
      open.resize(depth);
      absl::StrAppend(&out, std::string(indent + 2 * depth, ' '), parts[depth], ":\n");
      open.push_back(parts[depth]);
    }
    open.resize(parts.size());
    absl::StrAppend(&out, std::string(indent + 2 * parts.size(), ' '), name, ": ", value, "\n");
  }
  return out;
}

std::string ReferenceRow(const std::string& path, bool required, const std::string& value, const std::string& meaning) {
  return absl::StrCat("| `", path, "` | ",
                      required        ? "required"
                      : value.empty() ? ""
                                      : "`" + value + "`",
                      " | ", meaning, " |\n");
}

}  // namespace lynx::cli

// Strict reading of YAML records by tables of fields. A table says which fields a record has, what each means and how its text
// becomes a value. Unknown, repeated, missing and ill-typed fields are errors. They name the file, line, column, field and
// remedy. The same tables print records and their reference pages.
//
// A table is immutable and thread-safe. A YamlReader is for reading one file on one thread.
#ifndef LYNX_CLI_SPEC_YAML_RECORD_H_
#define LYNX_CLI_SPEC_YAML_RECORD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/spec/yaml_value.h"

namespace lynx::cli {

class YamlReader;

// The form of a scalar. A field's words ("auto") may be written in its place. kIntegers: a list of whole numbers, or a text
// with blanks between them.
enum class ScalarKind : uint8_t { kText, kInteger, kReal, kBoolean, kIntegers };

// A field of a record T. `path` is "name", or "section.name" for a map inside the record.
template <class T>
struct Field {
  std::string path;
  std::string meaning;
  bool required = false;
  // Reads a scalar's text; on failure says what was expected. If other fields' paths begin with this field's path, the
  // text is a word for the whole section ("parallel: auto").
  std::function<absl::Status(const std::string& text, T& record)> read;
  // Returns the scalar in YAML, or "" to leave the field out.
  std::function<std::string(const T& record)> write;
  // Used in place of `read` for lists and for records inside the record. Returns complete error messages, made by
  // YamlReader::Error.
  std::function<absl::Status(YamlReader& reader, const YamlValue& value, const std::string& path, T& record)> read_value;
  // The form of the scalar, for editors only; `read` decides what is valid. A kText field with words must be one of them.
  ScalarKind scalar = ScalarKind::kText;
  std::vector<std::string> words;
};

// Returns "; did you mean 'NAME'?" with the nearest known name. If `name` is a known name without its section, NAME is the name
// with the section: "model.layers" for "layers". If no known name is near, the text lists all known names.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& known);

// A scalar in the file, with the source that the file gives for it.
struct NumberSource {
  std::string path;    // "devices[0].memory"
  std::string value;   // the text in the file
  std::string source;  // "" = no source is given
};

class YamlReader {
 public:
  // How scalars may be written. kSourced: also as `{value: 80GiB, source: "data sheet"}`.
  enum class Scalars : uint8_t { kPlain, kSourced };

  explicit YamlReader(std::string file, Scalars scalars = Scalars::kPlain);

  // Checks that the document is a map with `apiVersion: lynx/v1` and `kind: KIND`.
  absl::Status CheckHeader(const YamlValue& root, const std::string& kind);

  // Reads the record in `map`, whose own path is `path` ("" = the document). Fields named in `optional` are not
  // required here.
  template <class T>
  absl::Status Read(const YamlValue& map, const std::string& path, const std::vector<Field<T>>& fields, T& record,
                    const std::vector<std::string>& optional = {});
  // Reads a list of at least `least` records and appends them to `records`.
  template <class T>
  absl::Status ReadList(const YamlValue& list, const std::string& path, size_t least, const std::vector<Field<T>>& fields,
                        std::vector<T>& records);

  // Returns InvalidArgument with the text "FILE:LINE:COLUMN: PATH: MESSAGE".
  absl::Status Error(const YamlValue& at, const std::string& path, const std::string& message) const;
  // "FILE:LINE:COLUMN" if the field has been read, else "FILE".
  std::string PlaceOf(const std::string& path) const;
  // The sources of all scalars read so far, in the order of the file.
  const std::vector<NumberSource>& sources() const { return sources_; }

 private:
  // A field, with functions that store its value in the C++ object of its record.
  struct Bound {
    const std::string* path;
    const std::string* meaning;
    bool required;
    std::function<absl::Status(const std::string&)> read;  // null if the field has read_value
    std::function<absl::Status(const YamlValue&, const std::string& path)> read_value;
  };
  struct Record {
    std::string path;
    std::vector<Bound> fields;
    std::vector<std::string> seen;  // paths of the fields that were read so far, relative to the record
  };

  absl::Status ReadRecord(const YamlValue& map, const std::string& path, std::vector<Bound> fields,
                          const std::vector<std::string>& optional);
  absl::Status ReadMap(const YamlValue& map, const std::string& section, Record& record);
  absl::Status ReadEntry(const YamlValue& value, const std::string& name, Record& record);
  absl::Status ReadScalar(const YamlValue& value, const std::string& path, const Bound& field);
  absl::Status CheckHeaderField(const YamlValue& root, const std::string& name, const std::string& wanted) const;
  absl::Status CheckList(const YamlValue& list, const std::string& path, size_t least) const;

  std::string file_;
  Scalars scalars_;
  std::vector<std::pair<std::string, std::string>> places_;  // path -> "FILE:LINE:COLUMN"
  std::vector<NumberSource> sources_;
};

// The record as YAML, each line indented by `indent`. Fields whose `write` returns "" are left out.
template <class T>
std::string RecordText(const std::vector<Field<T>>& fields, const T& record, int indent = 0);

// Rows of a Markdown table (field, default, meaning); `prefix` comes before each path.
template <class T>
std::string ReferenceRows(const std::vector<Field<T>>& fields, const T& defaults, const std::string& prefix = "");
inline constexpr char kReferenceHead[] = "| field | default | meaning |\n| --- | --- | --- |\n";

// ---- Functions that the templates above need ----

// Returns the values as YAML. A path such as "train.steps" gives a line "steps: VALUE" below a line "train:". Empty values are
// left out.
std::string NestedText(const std::vector<std::pair<std::string, std::string>>& paths_and_values, int indent);
std::string ReferenceRow(const std::string& path, bool required, const std::string& value, const std::string& meaning);

template <class T>
absl::Status YamlReader::Read(const YamlValue& map, const std::string& path, const std::vector<Field<T>>& fields, T& record,
                              const std::vector<std::string>& optional) {
  std::vector<Bound> bound;
  bound.reserve(fields.size());
  for (const Field<T>& field : fields) {
    Bound& b = bound.emplace_back(Bound{&field.path, &field.meaning, field.required});
    if (field.read) b.read = [&field, &record](const std::string& text) { return field.read(text, record); };
    if (field.read_value) {
      b.read_value = [this, &field, &record](const YamlValue& value, const std::string& at) {
        return field.read_value(*this, value, at, record);
      };
    }
  }
  return ReadRecord(map, path, std::move(bound), optional);
}

template <class T>
absl::Status YamlReader::ReadList(const YamlValue& list, const std::string& path, size_t least,
                                  const std::vector<Field<T>>& fields, std::vector<T>& records) {
  absl::Status status = CheckList(list, path, least);
  for (size_t i = 0; status.ok() && i < list.items.size(); ++i) {
    status = Read(list.items[i], path + "[" + std::to_string(i) + "]", fields, records.emplace_back());
  }
  return status;
}

template <class T>
std::string RecordText(const std::vector<Field<T>>& fields, const T& record, int indent) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Field<T>& field : fields) {
    if (field.write) lines.emplace_back(field.path, field.write(record));
  }
  return NestedText(lines, indent);
}

template <class T>
std::string ReferenceRows(const std::vector<Field<T>>& fields, const T& defaults, const std::string& prefix) {
  std::string rows;
  for (const Field<T>& field : fields) {
    // A field without a meaning stands for a whole section: it allows one word in its place ("parallel: auto"). The table has
    // rows for the section's fields instead.
    if (field.meaning.empty()) continue;
    rows += ReferenceRow(prefix + field.path, field.required, field.write ? field.write(defaults) : "", field.meaning);
  }
  return rows;
}

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_YAML_RECORD_H_

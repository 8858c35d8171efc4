// See engine.h.
#include "server/store/engine.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace lynx::server {

std::string PutStatement(const std::string& table, const std::vector<std::string>& keys,
                         const std::vector<std::string>& others) {
  std::vector<std::string> columns = keys;
  columns.insert(columns.end(), others.begin(), others.end());
  std::vector<std::string> sets;
  for (const std::string& other : others) sets.push_back(absl::StrCat(other, "=excluded.", other));
  return absl::StrCat("INSERT INTO ", table, "(", absl::StrJoin(columns, ", "), ") VALUES(",
                      absl::StrJoin(std::vector<std::string>(columns.size(), "?"), ", "), ") ON CONFLICT(",
                      absl::StrJoin(keys, ", "), ") DO ",
                      sets.empty() ? "NOTHING" : absl::StrCat("UPDATE SET ", absl::StrJoin(sets, ", ")));
}

Statement& Statement::Bind(int64_t value) {
  parameters_.push_back({.kind = ColumnKind::kInteger, .integer = value});
  return *this;
}

Statement& Statement::Bind(const std::string& text) {
  parameters_.push_back({.kind = ColumnKind::kText, .bytes = text});
  return *this;
}

Statement& Statement::BindBlob(const std::string& bytes) {
  parameters_.push_back({.kind = ColumnKind::kBlob, .bytes = bytes});
  return *this;
}

absl::Status Statement::Run() {
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool row, Next());
    if (!row) return absl::OkStatus();
  }
}

absl::StatusOr<bool> Statement::Next() {
  if (rows_ == nullptr) {
    absl::StatusOr<std::unique_ptr<Rows>> rows = engine_->Run(sql_, parameters_, use_);
    parameters_.clear();
    if (!rows.ok()) return rows.status();
    rows_ = *std::move(rows);
  }
  absl::StatusOr<bool> more = rows_->Next();
  if (!more.ok() || !*more) rows_.reset();
  return more;
}

}  // namespace lynx::server

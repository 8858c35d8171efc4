// See move_store.h.
#include "server/store/move_store.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/status.h"
#include "server/store/engine.h"
#include "server/store/store.h"
#include "server/store/store_address.h"

namespace lynx::server {
namespace {

// The number of rows that one query reads. Some rows contain plans of several megabytes.
constexpr int64_t kRowsPerPage = 100;

using Row = std::vector<Parameter>;

std::string Quoted(const Column& column) { return absl::StrCat("\"", column.name, "\""); }

std::string ColumnList(const Table& table, bool only_key) {
  std::vector<std::string> names;
  for (const Column& column : table.columns) {
    if (!only_key || column.in_key) names.push_back(Quoted(column));
  }
  return absl::StrJoin(names, ", ");
}

std::string Marks(size_t count) { return absl::StrJoin(std::vector<std::string>(count, "?"), ", "); }

// Calls `use` with each row of the table, in the order of its key.
absl::Status ForEachRow(Engine& engine, const Table& table, const std::function<absl::Status(const Row&)>& use) {
  const std::string select = absl::StrCat("SELECT ", ColumnList(table, false), " FROM ", table.name);
  const std::string key = ColumnList(table, true);
  const std::string order = absl::StrCat(" ORDER BY ", key, " LIMIT ", kRowsPerPage);
  Row last_key;
  while (true) {
    const std::string behind = last_key.empty() ? "" : absl::StrCat(" WHERE (", key, ") > (", Marks(last_key.size()), ")");
    LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Rows> rows,
                          engine.Run(absl::StrCat(select, behind, order), last_key, StatementUse::kOnce));
    int64_t count = 0;
    while (true) {
      LYNX_ASSIGN_OR_RETURN(const bool more, rows->Next());
      if (!more) break;
      ++count;
      Row row, row_key;
      for (size_t c = 0; c < table.columns.size(); ++c) {
        const ColumnKind kind = table.columns[c].kind;
        const int place = static_cast<int>(c);
        row.push_back(kind == ColumnKind::kInteger ? Parameter{.kind = kind, .integer = rows->Int(place)}
                                                   : Parameter{.kind = kind, .bytes = rows->Text(place)});
        if (table.columns[c].in_key) row_key.push_back(row.back());
      }
      last_key = std::move(row_key);
      LYNX_RETURN_IF_ERROR(use(row));
    }
    if (count < kRowsPerPage) return absl::OkStatus();
  }
}

// The sum of the digests of rows, as a number of 256 bits. So the order of the rows does not matter.
class RowSum {
 public:
  void Add(const Row& row) {
    std::string text;
    for (const Parameter& value : row) {
      const std::string bytes = value.kind == ColumnKind::kInteger ? absl::StrCat(value.integer) : value.bytes;
      absl::StrAppend(&text, bytes.size(), ":", bytes);
    }
    const std::string digest = Sha256Hex(text);
    uint64_t carry = 0;
    for (size_t i = words_.size(); i-- > 0;) {
      uint64_t word = 0;
      absl::SimpleHexAtoi(digest.substr(16 * i, 16), &word);
      const uint64_t before = words_[i];
      words_[i] = before + word + carry;
      carry = words_[i] < before || (carry == 1 && words_[i] == before) ? 1 : 0;
    }
    ++rows_;
  }
  int64_t rows() const { return rows_; }
  std::string text() const { return absl::StrFormat("%016x%016x%016x%016x", words_[0], words_[1], words_[2], words_[3]); }

 private:
  std::array<uint64_t, 4> words_{};
  int64_t rows_ = 0;
};

absl::StatusOr<MovedTable> Summary(Engine& engine, const Table& table) {
  RowSum sum;
  LYNX_RETURN_IF_ERROR(ForEachRow(engine, table, [&](const Row& row) {
    sum.Add(row);
    return absl::OkStatus();
  }));
  return MovedTable{.name = table.name, .rows = sum.rows(), .digest = sum.text()};
}

absl::Status CheckTables(const std::vector<Table>& from, const std::vector<Table>& to) {
  const auto text = [](const std::vector<Table>& tables) {
    std::vector<std::string> all;
    for (const Table& table : tables) {
      for (const Column& column : table.columns) {
        all.push_back(absl::StrCat(table.name, ".", column.name, " ", static_cast<int>(column.kind), column.in_key));
      }
    }
    std::sort(all.begin(), all.end());
    return absl::StrJoin(all, ", ");
  };
  if (text(from) == text(to)) return absl::OkStatus();
  return absl::FailedPreconditionError("the two databases do not have the same tables: one of them was changed by hand");
}

absl::Status CheckEmpty(Engine& engine, const std::vector<Table>& tables) {
  for (const Table& table : tables) {
    LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Rows> rows,
                          engine.Run(absl::StrCat("SELECT count(*) FROM ", table.name), {}, StatementUse::kOnce));
    LYNX_RETURN_IF_ERROR(rows->Next().status());
    if (rows->Int(0) == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(engine.name(), " is not empty (", table.name, " has ", rows->Int(0),
                                                      " rows): move into an empty database, so that nothing is overwritten"));
  }
  return absl::OkStatus();
}

absl::Status CopyRows(Engine& from, Engine& to, const std::vector<Table>& tables) {
  LYNX_RETURN_IF_ERROR(to.Begin().status());
  absl::Status status;
  for (const Table& table : tables) {
    const std::string insert =
        absl::StrCat("INSERT INTO ", table.name, "(", ColumnList(table, false), ") VALUES(", Marks(table.columns.size()), ")");
    if (status.ok()) {
      status = ForEachRow(from, table, [&](const Row& row) -> absl::Status {
        LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Rows> rows, to.Run(insert, row, StatementUse::kKept));
        return rows->Next().status();
      });
    }
  }
  if (status.ok()) status = to.Commit();
  if (!status.ok()) to.Rollback();
  return status;
}

absl::StatusOr<std::unique_ptr<Store>> OpenSource(const std::string& address, const std::string& data_directory) {
  // If the file does not exist, SQLite would make it. So this is checked first.
  const std::string file = SqliteFileOf(address, data_directory);
  std::error_code ignored;
  if (!file.empty() && !std::filesystem::exists(file, ignored)) {
    return absl::FailedPreconditionError(absl::StrCat("there is no database ", file, " to move: check --data-dir and --store"));
  }
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, EngineAt(address, data_directory));
  return Store::Open(std::move(engine), OlderSchema::kRefuse);
}

}  // namespace

absl::StatusOr<MovedStore> MoveStore(const std::string& from, const std::string& to, const std::string& data_directory) {
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Store> source, OpenSource(from, data_directory));
  LYNX_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, EngineAt(to, data_directory));
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<Store> copy, Store::Open(std::move(engine), OlderSchema::kMakeNew));
  MovedStore moved{.from = source->name(), .to = copy->name()};
  const std::string context = absl::StrCat("cannot move ", moved.from, " to ", moved.to);
  LYNX_ASSIGN_OR_RETURN(const std::vector<Table> tables, source->engine().Tables());
  LYNX_ASSIGN_OR_RETURN(const std::vector<Table> same, copy->engine().Tables());
  LYNX_RETURN_IF_ERROR(CheckTables(tables, same));
  LYNX_RETURN_IF_ERROR(CheckEmpty(copy->engine(), tables));
  LYNX_RETURN_IF_ERROR(Annotate(CopyRows(source->engine(), copy->engine(), tables), context));
  for (const Table& table : tables) {
    LYNX_ASSIGN_OR_RETURN(MovedTable read, Summary(source->engine(), table));
    LYNX_ASSIGN_OR_RETURN(const MovedTable written, Summary(copy->engine(), table));
    if (read.rows != written.rows || read.digest != written.digest) {
      return absl::DataLossError(absl::StrCat(context, ": ", table.name, " has ", read.rows, " rows (", read.digest,
                                              ") there and ", written.rows, " (", written.digest,
                                              ") here: do not use the copy"));
    }
    moved.tables.push_back(std::move(read));
  }
  return moved;
}

}  // namespace lynx::server

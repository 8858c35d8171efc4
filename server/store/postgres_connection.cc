// See postgres_connection.h.
#include "server/store/postgres_connection.h"

#include <endian.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "server/store/postgres_text.h"

namespace lynx::server {
namespace {

using std::chrono::steady_clock;

// Numbers of types in PostgreSQL's catalog (pg_type.dat): bool, bytea, int8, int2, int4, text.
constexpr Oid kBlobOid = 17, kIntegerOid = 20, kTextOid = 25;

Oid OidOf(ColumnKind kind) {
  return kind == ColumnKind::kInteger ? kIntegerOid : kind == ColumnKind::kBlob ? kBlobOid : kTextOid;
}

std::string Trimmed(const char* text) { return std::string(absl::StripAsciiWhitespace(text == nullptr ? "" : text)); }

// Replaces each ? that is not in quotes by $1, $2 and so on.
std::string WithNumbers(const std::string& sql) {
  std::string numbered;
  int number = 0;
  char quote = '\0';
  for (const char c : sql) {
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '?') {
      absl::StrAppend(&numbered, "$", ++number);
      continue;
    }
    numbered += c;
  }
  return numbered;
}

// Parameters in the form that libpq wants. All are sent in binary form, integers with the highest byte first.
struct SentParameters {
  explicit SentParameters(const std::vector<Parameter>& parameters) {
    bytes.reserve(parameters.size());
    for (const Parameter& parameter : parameters) {
      if (parameter.kind == ColumnKind::kInteger) {
        const uint64_t big = htobe64(static_cast<uint64_t>(parameter.integer));
        bytes.emplace_back(reinterpret_cast<const char*>(&big), sizeof big);
      } else {
        bytes.push_back(parameter.kind == ColumnKind::kText ? ToPostgresText(parameter.bytes) : parameter.bytes);
      }
      types.push_back(OidOf(parameter.kind));
      values.push_back(bytes.back().data());
      lengths.push_back(static_cast<int>(bytes.back().size()));
      formats.push_back(1);
    }
  }
  int count() const { return static_cast<int>(bytes.size()); }

  std::vector<std::string> bytes;
  std::vector<Oid> types;
  std::vector<const char*> values;
  std::vector<int> lengths, formats;
};

void IgnoreNotice(void*, const char*) {}

}  // namespace

std::string WithoutPassword(const std::string& url) {
  std::string shown = url;
  const size_t scheme = shown.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  const size_t at = shown.rfind('@');
  const size_t colon = shown.find(':', begin);
  if (at != std::string::npos && colon != std::string::npos && colon < at) shown.replace(colon + 1, at - colon - 1, "***");
  // The loop also finds "sslpassword=", because it ends with "password=".
  for (size_t from = shown.find("password="); from != std::string::npos; from = shown.find("password=", from + 1)) {
    const size_t value = from + 9;
    shown.replace(value, std::min(shown.find('&', value), shown.size()) - value, "***");
  }
  return shown;
}

absl::Status CheckPostgresUrl(const std::string& url) {
  const auto wrong = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--store ", WithoutPassword(url), " ", why,
                                                   ": write postgresql://USER@HOST/DATABASE, and keep the password in ",
                                                   "the variable PGPASSWORD or in a password file"));
  };
  // libpq takes the first @ or / as the end of the password. It would show the rest of the password as the name of a host.
  const std::string before_options = url.substr(0, url.find('?'));
  const size_t first_at = before_options.find('@');
  const size_t first_slash = before_options.find('/', before_options.find("://") + 3);
  const std::string rest = url.substr(url.find("://") + 3);
  const size_t end = rest.find_first_of("@/");
  const bool marked = end != std::string::npos && rest[end] == '@' && rest.find('?') < end;
  if (first_at != before_options.rfind('@') || (first_at != std::string::npos && first_slash < first_at) || marked) {
    return wrong("has an @, / or ? in its user or password, which must be written as %40, %2F or %3F");
  }
  // libpq's own message is not shown, because it may quote the URL.
  char* error = nullptr;
  PQconninfoOption* const options = PQconninfoParse(url.c_str(), &error);
  PQfreemem(error);
  if (options == nullptr) return wrong("is not a connection URL that libpq takes");
  PQconninfoFree(options);
  return absl::OkStatus();
}

int64_t PostgresResult::Int(int row, int column) const {
  const char* bytes = PQgetvalue(result_.get(), row, column);
  int64_t value = 0;
  const int length = PQgetlength(result_.get(), row, column);
  for (int i = 0; i < length; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return length == 4 ? static_cast<int32_t>(value) : value;
}

std::string PostgresResult::Text(int row, int column) const {
  std::string bytes(PQgetvalue(result_.get(), row, column), static_cast<size_t>(PQgetlength(result_.get(), row, column)));
  return PQftype(result_.get(), column) == kBlobOid ? bytes : FromPostgresText(bytes);
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> PostgresConnection::Connect(const std::string& url,
                                                                                const ConnectOptions& options) {
  // The URL replaces parameters that come before "dbname". With these settings, TCP itself notices that a machine has failed.
  std::vector<std::pair<const char*, const char*>> parameters = {{"fallback_application_name", options.name.c_str()},
                                                                 {"keepalives_idle", "5"},
                                                                 {"keepalives_interval", "2"},
                                                                 {"keepalives_count", "3"},
                                                                 {"tcp_user_timeout", "15000"}};
  if (options.seconds.empty() && std::getenv("PGCONNECT_TIMEOUT") == nullptr) parameters.emplace_back("connect_timeout", "5");
  parameters.emplace_back("dbname", url.c_str());
  if (!options.seconds.empty()) parameters.emplace_back("connect_timeout", options.seconds.c_str());
  parameters.emplace_back("client_encoding", "UTF8");
  std::vector<const char*> names, values;
  for (const auto& [name, value] : parameters) {
    names.push_back(name);
    values.push_back(value);
  }
  names.push_back(nullptr);
  values.push_back(nullptr);
  std::unique_ptr<PostgresConnection> connection(
      new PostgresConnection(PQconnectdbParams(names.data(), values.data(), /*expand_dbname=*/1), options.answer));
  PGconn* const raw = connection->connection_.get();
  if (PQstatus(raw) != CONNECTION_OK) return absl::UnavailableError(Trimmed(PQerrorMessage(raw)));
  PQsetNoticeProcessor(raw, IgnoreNotice, nullptr);
  PQsetnonblocking(raw, 1);
  return connection;
}

std::string PostgresConnection::Setting(const char* name) const {
  const char* value = PQparameterStatus(connection_.get(), name);
  return value == nullptr ? "" : value;
}

absl::Status PostgresConnection::Lost() {
  is_lost_ = true;
  const std::string why = Trimmed(PQerrorMessage(connection_.get()));
  return absl::UnavailableError(absl::StrCat("the connection was lost", why.empty() ? "" : ": ", why));
}

absl::Status PostgresConnection::StatusOf(const PGresult* result) {
  const ExecStatusType kind = PQresultStatus(result);
  if (kind == PGRES_COMMAND_OK || kind == PGRES_TUPLES_OK) return absl::OkStatus();
  if (PQstatus(connection_.get()) != CONNECTION_OK) is_lost_ = true;
  const char* code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char* primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  const std::string text = primary != nullptr ? primary : Trimmed(PQresultErrorMessage(result));
  // https://www.postgresql.org/docs/15/errcodes-appendix.html
  const std::string state = code == nullptr ? "" : code;
  if (absl::StartsWith(state, "08") || absl::StartsWith(state, "57P") || state.empty()) is_lost_ = true;
  if (state == "53100") return absl::ResourceExhaustedError(text);
  // The data or an index is damaged, or a table or column does not exist. Statements are fixed in the code, so then the schema
  // is wrong.
  if (state == "XX001" || state == "XX002" || state == "42P01" || state == "42703") return absl::DataLossError(text);
  return absl::UnavailableError(state.empty() ? text : absl::StrCat(text, " (SQLSTATE ", state, ")"));
}

absl::Status PostgresConnection::AwaitNext(steady_clock::time_point deadline) {
  PGconn* const raw = connection_.get();
  while (true) {
    const int unsent = PQflush(raw);
    if (unsent < 0) return Lost();
    if (unsent == 0 && PQisBusy(raw) == 0) return absl::OkStatus();
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
    pollfd fd{.fd = PQsocket(raw), .events = static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN), .revents = 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&fd, 1, static_cast<int>(left.count()));
    if (ready == 0) {
      is_lost_ = true;
      return absl::UnavailableError(absl::StrCat("it did not answer for ", answer_time_.count(), " ms"));
    }
    if (ready > 0 && (fd.revents & ~POLLOUT) != 0 && PQconsumeInput(raw) == 0) return Lost();
  }
}

absl::StatusOr<PostgresResult> PostgresConnection::Await() {
  const auto deadline = steady_clock::now() + answer_time_;
  absl::Status status;
  PGresult* last = nullptr;
  while (true) {
    const absl::Status ready = AwaitNext(deadline);
    PGresult* const result = ready.ok() ? PQgetResult(connection_.get()) : nullptr;
    if (!ready.ok() && status.ok()) status = ready;
    if (result == nullptr) break;
    PQclear(last);
    last = result;
    if (status.ok()) status = StatusOf(result);
  }
  if (status.ok() && last == nullptr) status = Lost();
  PostgresResult answer(last);
  if (!status.ok()) return status;
  return answer;
}

absl::StatusOr<PostgresResult> PostgresConnection::Run(const std::string& sql, const std::vector<Parameter>& parameters,
                                                       StatementUse use) {
  if (is_lost_) return absl::UnavailableError("the connection was lost");
  PGconn* const raw = connection_.get();
  const SentParameters sent(parameters);
  if (use == StatementUse::kOnce) {
    if (PQsendQueryParams(raw, WithNumbers(sql).c_str(), sent.count(), sent.types.data(), sent.values.data(),
                          sent.lengths.data(), sent.formats.data(), /*resultFormat=*/1) == 0) {
      return Lost();
    }
    return Await();
  }
  auto found = kept_.find(sql);
  if (found == kept_.end()) {
    const std::string name = absl::StrCat("s", kept_.size());
    if (PQsendPrepare(raw, name.c_str(), WithNumbers(sql).c_str(), sent.count(), sent.types.data()) == 0) return Lost();
    LYNX_RETURN_IF_ERROR(Await().status());
    found = kept_.emplace(sql, name).first;
  }
  if (PQsendQueryPrepared(raw, found->second.c_str(), sent.count(), sent.values.data(), sent.lengths.data(),
                          sent.formats.data(), /*resultFormat=*/1) == 0) {
    return Lost();
  }
  return Await();
}

absl::Status PostgresConnection::MakeCommitsDurable() {
  // With `off`, `local` and `remote_write`, an acknowledged commit may be lost although PostgreSQL could keep it. So these
  // become `on`.
  return Run("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> "
             "'remote_apply'")
      .status();
}

absl::Status PostgresConnection::Execute(const std::string& statements) {
  if (is_lost_) return absl::UnavailableError("the connection was lost");
  if (PQsendQuery(connection_.get(), statements.c_str()) == 0) return Lost();
  return Await().status();
}

}  // namespace lynx::server

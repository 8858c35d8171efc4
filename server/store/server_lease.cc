// See server_lease.h.
#include "server/store/server_lease.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/version.h"
#include "security/secret.h"

namespace lynx::server {
namespace {

using std::chrono::milliseconds;

constexpr int kIdDigits = 16;
// How long a statement about the lease may take. A renewal that takes longer may come too late, so it is tried on another
// connection.
constexpr milliseconds kAnswer{1'000};
constexpr milliseconds kRetry{100};
constexpr char kConnectSeconds[] = "2";

constexpr char kLeaseSession[] = "lynx-server lease";

// The columns that describe a server; both tables have them.
constexpr char kIdentityColumns[] = "id, address, host, process, version, encryption";
constexpr char kNow[] = "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint";

Parameter Integer(int64_t value) { return {.kind = ColumnKind::kInteger, .integer = value}; }
Parameter OfText(const std::string& text) { return {.kind = ColumnKind::kText, .bytes = text}; }

ServerIdentity IdentityIn(const PostgresResult& rows, int row) {
  return {.id = rows.Text(row, 0),
          .address = rows.Text(row, 1),
          .host = rows.Text(row, 2),
          .process = rows.Int(row, 3),
          .version = rows.Text(row, 4),
          .encryption = rows.Text(row, 5)};
}

}  // namespace

ServerIdentity NewIdentity(const std::string& address) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return {.id = NewRandomId(kIdDigits),
          .address = address,
          .host = host.data(),
          .process = static_cast<int64_t>(::getpid()),
          .version = kVersion};
}

const std::string& LeaseTables() {
  // All times are in nanoseconds since the Unix epoch, by the clock of the database.
  static const auto* const tables = new std::string(
      "CREATE TABLE IF NOT EXISTS lynx_lease(one BIGINT PRIMARY KEY CHECK(one = 1), id TEXT NOT NULL, address TEXT NOT NULL, "
      "host TEXT NOT NULL, process BIGINT NOT NULL, version TEXT NOT NULL, encryption TEXT NOT NULL, epoch BIGINT NOT NULL, "
      "since_ns BIGINT NOT NULL, renewals BIGINT NOT NULL, ends_ns BIGINT NOT NULL);"
      "INSERT INTO lynx_lease VALUES(1, '', '', '', 0, '', '', 0, 0, 0, 0) ON CONFLICT DO NOTHING;"
      "CREATE TABLE IF NOT EXISTS lynx_servers(address TEXT PRIMARY KEY, id TEXT NOT NULL, host TEXT NOT NULL, process BIGINT "
      "NOT NULL, version TEXT NOT NULL, encryption TEXT NOT NULL, since_ns BIGINT NOT NULL, seen_ns BIGINT NOT NULL)");
  return *tables;
}

absl::StatusOr<std::optional<LeaseRow>> ReadLease(PostgresConnection& connection) {
  LYNX_ASSIGN_OR_RETURN(const PostgresResult there, connection.Run("SELECT to_regclass('lynx_lease') IS NOT NULL"));
  if (there.Int(0, 0) == 0) return std::nullopt;
  LYNX_ASSIGN_OR_RETURN(
      const PostgresResult rows,
      connection.Run(absl::StrCat("SELECT ", kIdentityColumns, ", epoch, since_ns, renewals, (ends_ns - ", kNow,
                                  ") / 1000000, (SELECT s.epoch FROM lynx_store s) > epoch FROM "
                                  "lynx_lease")));
  if (rows.rows() != 1) return absl::DataLossError("the table lynx_lease has not one row");
  return LeaseRow{.holder = IdentityIn(rows, 0),
                  .epoch = rows.Int(0, 6),
                  .since = Nanos(rows.Int(0, 7)),
                  .renewals = rows.Int(0, 8),
                  .left = milliseconds(rows.Int(0, 9)),
                  .older_server = rows.Int(0, 10) != 0};
}

absl::StatusOr<int64_t> TakeLease(PostgresConnection& connection, const ServerIdentity& holder, const LeaseTimes& times) {
  // If two servers run this statement at the same time, the second one waits until the first has committed. Then it finds that
  // the lease is not free.
  LYNX_ASSIGN_OR_RETURN(
      const PostgresResult rows,
      connection.Run(absl::StrCat("UPDATE lynx_lease SET id=?, address=?, host=?, process=?, version=?, encryption=?, "
                                  "epoch=greatest(epoch, (SELECT max(s.epoch) FROM lynx_store s)) + 1, since_ns=",
                                  kNow, ", renewals=0, ends_ns=", kNow, " + ? WHERE ends_ns <= ", kNow, " RETURNING epoch"),
                     {OfText(holder.id), OfText(holder.address), OfText(holder.host), Integer(holder.process),
                      OfText(holder.version), OfText(holder.encryption), Integer(times.life.count() * 1'000'000)}));
  return rows.rows() == 0 ? 0 : rows.Int(0, 0);
}

absl::Status CapLease(PostgresConnection& connection, const LeaseTimes& times) {
  const Parameter life = Integer(times.life.count() * 1'000'000);
  return connection
      .Run(absl::StrCat("UPDATE lynx_lease SET ends_ns=", kNow, " + ? WHERE ends_ns > ", kNow, " + ?"), {life, life})
      .status();
}

absl::StatusOr<bool> OthersHave(PostgresConnection& connection, const ServerIdentity& own, const std::string& encryption) {
  LYNX_ASSIGN_OR_RETURN(
      const PostgresResult rows,
      connection.Run(absl::StrCat("SELECT count(*) FROM lynx_servers WHERE id <> ? AND address <> ? AND "
                                  "encryption = ? AND seen_ns > ",
                                  kNow, " - ?"),
                     {OfText(own.id), OfText(own.address), OfText(encryption), Integer(kStillThere.count() * 1'000'000)}));
  return rows.Int(0, 0) > 0;
}

absl::Status EnterServer(PostgresConnection& connection, const ServerIdentity& server) {
  if (server.address.empty()) return absl::OkStatus();
  return connection
      .Run(absl::StrCat("INSERT INTO lynx_servers(", kIdentityColumns, ", since_ns, seen_ns) VALUES(?, ?, ?, ?, ?, ?, ", kNow,
                        ", ", kNow,
                        ") ON CONFLICT(address) DO UPDATE SET since_ns=CASE WHEN lynx_servers.id=EXCLUDED.id THEN "
                        "lynx_servers.since_ns ELSE EXCLUDED.since_ns END, id=EXCLUDED.id, host=EXCLUDED.host, "
                        "process=EXCLUDED.process, version=EXCLUDED.version, encryption=EXCLUDED.encryption, "
                        "seen_ns=EXCLUDED.seen_ns"),
           {OfText(server.id), OfText(server.address), OfText(server.host), Integer(server.process), OfText(server.version),
            OfText(server.encryption)},
           StatementUse::kKept)
      .status();
}

absl::StatusOr<std::vector<KnownServer>> ReadServers(PostgresConnection& connection) {
  LYNX_ASSIGN_OR_RETURN(const PostgresResult rows,
                        connection.Run(absl::StrCat("SELECT ", kIdentityColumns, ", since_ns, ", kNow,
                                                    " - seen_ns, id=(SELECT l.id FROM lynx_lease l WHERE l.ends_ns > ", kNow,
                                                    ") FROM lynx_servers WHERE seen_ns > ", kNow,
                                                    " - 3600000000000 ORDER BY address COLLATE \"C\""),
                                       {}, StatementUse::kKept));
  std::vector<KnownServer> servers;
  for (int row = 0; row < rows.rows(); ++row) {
    servers.push_back({.server = IdentityIn(rows, row),
                       .leads = rows.Int(row, 8) != 0,
                       .since = Nanos(rows.Int(row, 6)),
                       .seen_ago = Nanos(rows.Int(row, 7))});
  }
  return servers;
}

absl::StatusOr<std::unique_ptr<PostgresConnection>> ServerLease::ConnectFor(const std::string& url) {
  LYNX_ASSIGN_OR_RETURN(
      std::unique_ptr<PostgresConnection> connection,
      PostgresConnection::Connect(url, {.answer = kAnswer, .name = kLeaseSession, .seconds = kConnectSeconds}));
  LYNX_RETURN_IF_ERROR(connection->MakeCommitsDurable());
  return connection;
}

ServerLease::ServerLease(std::string url, std::unique_ptr<PostgresConnection> connection, ServerIdentity holder,
                         const LeaseTimes& times, int64_t epoch, Nanos taken_at, std::shared_ptr<Leadership> leadership)
    : url_(std::move(url)), times_(times), epoch_(epoch), leadership_(std::move(leadership)),
      connection_(std::move(connection)), holder_(std::move(holder)) {
  leadership_->LeadUntil(taken_at + Nanos((times_.life - times_.margin).count() * 1'000'000));
  thread_ = std::thread([this] { RenewForever(); });
}

ServerLease::~ServerLease() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  thread_.join();
  leadership_->End();
  if (lost_ || !Connect().ok()) return;  // the lease then ends by itself when its time is over
  connection_->Run("UPDATE lynx_lease SET ends_ns=0 WHERE id=? AND epoch=?", {OfText(holder_.id), Integer(epoch_)})
      .status()
      .IgnoreError();
}

void ServerLease::SetAddress(const std::string& address) {
  const std::lock_guard lock(mutex_);
  holder_.address = address;
  wake_.notify_all();
}

std::vector<KnownServer> ServerLease::servers() const {
  const std::lock_guard lock(mutex_);
  std::vector<KnownServer> servers = servers_;
  for (KnownServer& server : servers) server.seen_ago = server.seen_ago + (BootTime() - servers_at_);
  return servers;
}

absl::Status ServerLease::Connect() {
  if (connection_ != nullptr && !connection_->is_lost()) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(connection_, ConnectFor(url_));
  return absl::OkStatus();
}

absl::Status ServerLease::Renew() {
  LYNX_RETURN_IF_ERROR(Connect());
  ServerIdentity holder;
  {
    const std::lock_guard lock(mutex_);
    holder = holder_;
  }
  LYNX_ASSIGN_OR_RETURN(
      const PostgresResult renewed,
      connection_->Run(absl::StrCat("UPDATE lynx_lease SET address=?, renewals=renewals+1, ends_ns=", kNow,
                                    " + ? WHERE id=? AND epoch=? RETURNING epoch"),
                       {OfText(holder.address), Integer(times_.life.count() * 1'000'000), OfText(holder.id), Integer(epoch_)},
                       StatementUse::kKept));
  if (renewed.rows() == 1) return absl::OkStatus();
  return absl::FailedPreconditionError("another server has taken the lease");
}

void ServerLease::RenewForever() {
  std::unique_lock lock(mutex_);
  while (true) {
    lock.unlock();
    const Nanos begin = BootTime();
    const absl::Status renewed = Renew();
    milliseconds pause = kRetry;
    if (renewed.ok()) {
      leadership_->LeadUntil(begin + Nanos((times_.life - times_.margin).count() * 1'000'000));
      pause = times_.renew;
    } else if (renewed.code() == absl::StatusCode::kFailedPrecondition) {
      leadership_->End();
      lost_ = true;
      return;
    }
    std::vector<KnownServer> servers;
    Nanos read_at;
    if (renewed.ok()) {
      lock.lock();
      const ServerIdentity holder = holder_;
      lock.unlock();
      if (EnterServer(*connection_, holder).ok()) {
        read_at = BootTime();
        if (absl::StatusOr<std::vector<KnownServer>> read = ReadServers(*connection_); read.ok()) servers = *std::move(read);
      }
    }
    lock.lock();
    if (!servers.empty()) {
      servers_ = std::move(servers);
      servers_at_ = read_at;
    }
    if (renewed.ok()) {
      // The pause is counted from the beginning of the last renewal, so that slow answers do not delay the next renewal.
      const milliseconds taken((BootTime() - begin).value / 1'000'000);
      pause = std::clamp(pause - taken, std::min(kRetry, times_.renew), times_.renew);
    }
    const std::string address = holder_.address;
    wake_.wait_for(lock, pause, [&] { return stop_ || holder_.address != address; });
    if (stop_) return;
  }
}

}  // namespace lynx::server

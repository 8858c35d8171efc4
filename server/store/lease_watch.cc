// See lease_watch.h.
#include "server/store/lease_watch.h"

#include <optional>

#include "common/status.h"

namespace lynx::server {
namespace {

// A standby must not wait long for a database host that has failed, because the URL may name another host that has the
// database.
constexpr std::chrono::milliseconds kAnswer{2'000};
constexpr char kWatchSession[] = "lynx-server watch";
constexpr char kConnectSeconds[] = "2";

}  // namespace

absl::Status LeaseWatch::Connect() {
  if (connection_ != nullptr && !connection_->is_lost()) return absl::OkStatus();
  LYNX_ASSIGN_OR_RETURN(
      connection_, PostgresConnection::Connect(url_, {.answer = kAnswer, .name = kWatchSession, .seconds = kConnectSeconds}));
  return absl::OkStatus();
}

absl::StatusOr<LeaseWatch::View> LeaseWatch::Look() {
  LYNX_RETURN_IF_ERROR(Connect());
  LYNX_ASSIGN_OR_RETURN(const std::optional<LeaseRow> row, ReadLease(*connection_));
  if (!row.has_value()) return View{.free = true};
  if (row->left > times_.life) LYNX_RETURN_IF_ERROR(CapLease(*connection_, times_));
  const bool is_free = row->left <= std::chrono::milliseconds(0);
  LYNX_RETURN_IF_ERROR(EnterServer(*connection_, own_));
  View view{.free = is_free,
            .left = row->left,
            .epoch = row->epoch,
            .leader = is_free ? "" : row->holder.address,
            .encryption = row->holder.encryption};
  if (is_free) {
    LYNX_ASSIGN_OR_RETURN(const bool stands, OthersHave(*connection_, own_, view.encryption));
    if (!stands) view.encryption.clear();
  }
  return view;
}

absl::StatusOr<std::map<std::string, std::string>> LeaseWatch::LoadShared() {
  LYNX_RETURN_IF_ERROR(Connect());
  std::map<std::string, std::string> values;
  LYNX_ASSIGN_OR_RETURN(const PostgresResult there, connection_->Run("SELECT to_regclass('lynx_shared') IS NOT NULL"));
  if (there.Int(0, 0) == 0) return values;
  LYNX_ASSIGN_OR_RETURN(const PostgresResult rows, connection_->Run("SELECT name, value FROM lynx_shared"));
  for (int row = 0; row < rows.rows(); ++row) values[rows.Text(row, 0)] = rows.Text(row, 1);
  return values;
}

}  // namespace lynx::server

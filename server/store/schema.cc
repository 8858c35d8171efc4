// See schema.h.
#include "server/store/schema.h"

#include <iterator>

#include "common/status.h"

namespace lynx::server {
namespace {

// Entry n has the statements that lead from version n to version n + 1. An empty database gets all of them, in one transaction.
// A name that is a reserved word of SQL, such as user, is in double quotes.
constexpr const char* kSteps[] = {
    R"sql(
CREATE TABLE jobs(
  id TEXT PRIMARY KEY, submission INTEGER NOT NULL UNIQUE, idempotency_key TEXT NOT NULL UNIQUE,
  spec BLOB NOT NULL, spec_digest TEXT NOT NULL,
  state TEXT NOT NULL, reason TEXT NOT NULL,
  submitted_ns INTEGER NOT NULL, started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, events INTEGER NOT NULL,
  generation INTEGER NOT NULL, restarts INTEGER NOT NULL, restart_charge INTEGER NOT NULL,
  best_steps INTEGER NOT NULL, base_steps INTEGER NOT NULL, resume_step INTEGER NOT NULL,
  stop INTEGER NOT NULL, stop_reason TEXT NOT NULL, cancel_requested INTEGER NOT NULL,
  checkpoint_path TEXT NOT NULL, checkpoint_step INTEGER NOT NULL,
  plan_digest TEXT NOT NULL, figures BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE plans(job_id TEXT PRIMARY KEY, digest TEXT NOT NULL, plan BLOB NOT NULL);
CREATE TABLE ranks(
  job_id TEXT NOT NULL, rank INTEGER NOT NULL, node TEXT NOT NULL, device INTEGER NOT NULL, host TEXT NOT NULL,
  port INTEGER NOT NULL, acknowledged INTEGER NOT NULL, finished INTEGER NOT NULL,
  PRIMARY KEY(job_id, rank)) WITHOUT ROWID;
CREATE TABLE events(
  job_id TEXT NOT NULL, sequence INTEGER NOT NULL, time_ns INTEGER NOT NULL, state TEXT NOT NULL, kind TEXT NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY(job_id, sequence)) WITHOUT ROWID;
CREATE TABLE checkpoints(
  job_id TEXT NOT NULL, generation INTEGER NOT NULL, step INTEGER NOT NULL, path TEXT NOT NULL, bytes INTEGER NOT NULL,
  time_ns INTEGER NOT NULL, PRIMARY KEY(job_id, generation, step)) WITHOUT ROWID;
)sql",
    "CREATE TABLE traces(job_id TEXT PRIMARY KEY, trace BLOB NOT NULL) WITHOUT ROWID;"
    "ALTER TABLE plans ADD COLUMN cluster BLOB NOT NULL DEFAULT x''",
    "CREATE TABLE cordons(node TEXT PRIMARY KEY, reason TEXT NOT NULL, drain INTEGER NOT NULL, deadline_ns INTEGER NOT NULL, "
    "since_ns INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE queues(name TEXT PRIMARY KEY, weight INTEGER NOT NULL, quota INTEGER NOT NULL, may_borrow INTEGER NOT NULL) "
    "WITHOUT ROWID",
    "ALTER TABLE ranks ADD COLUMN device_uuid TEXT NOT NULL DEFAULT ''",
    "CREATE TABLE users(name TEXT PRIMARY KEY, role TEXT NOT NULL, created_ns INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE tokens(id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, \"user\" TEXT NOT NULL, created_ns INTEGER NOT "
    "NULL, "
    "expires_ns INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE join_tokens(digest TEXT PRIMARY KEY, node TEXT NOT NULL, created_ns INTEGER NOT NULL, expires_ns INTEGER NOT "
    "NULL) "
    "WITHOUT ROWID;"
    "CREATE TABLE certificates(serial TEXT PRIMARY KEY, node TEXT NOT NULL, issued_ns INTEGER NOT NULL, ends_ns INTEGER NOT "
    "NULL) "
    "WITHOUT ROWID;"
    "CREATE TABLE audit(sequence INTEGER PRIMARY KEY AUTOINCREMENT, time_ns INTEGER NOT NULL, who TEXT NOT NULL, origin TEXT "
    "NOT NULL, "
    "what TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL, refused INTEGER NOT NULL);"
    "CREATE INDEX audit_refused ON audit(sequence) WHERE refused=1",
    "CREATE TABLE nodes(name TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE curves(job_id TEXT PRIMARY KEY, curves BLOB NOT NULL) WITHOUT ROWID",
    // The owners of existing jobs are filled in from the audit records. `managers`: names, separated by commas.
    "ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE queues ADD COLUMN managers TEXT NOT NULL DEFAULT '';"
    "UPDATE jobs SET owner=audit.who FROM audit, (SELECT min(sequence) AS sequence FROM audit WHERE what='Jobs.SubmitJob' AND "
    "outcome='OK' AND detail='' GROUP BY target) AS submitted WHERE audit.sequence=submitted.sequence AND audit.target=jobs.id",
    "ALTER TABLE queues ADD COLUMN user_quota INTEGER NOT NULL DEFAULT 0",
};
static_assert(std::size(kSteps) == kSchemaVersion);

}  // namespace

absl::Status DefineTables(Engine& engine, int64_t schema) {
  for (int64_t to = schema + 1; to <= kSchemaVersion; ++to) LYNX_RETURN_IF_ERROR(engine.Define(kSteps[to - 1], to));
  return absl::OkStatus();
}

}  // namespace lynx::server

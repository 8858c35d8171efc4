// Store: everything that the server must not forget, in a database. Data survive kill -9 and a power failure once Commit has
// returned OK for them. The owner thread writes all decisions of a round of events in one transaction. The Store says what is
// written, as rows; an Engine runs its statements, on SQLite or on PostgreSQL.
//
// Not thread-safe: one thread opens it, then only the owner thread uses it.
#ifndef LYNX_SERVER_STORE_STORE_H_
#define LYNX_SERVER_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/controller/controller.h"
#include "server/store/engine.h"
#include "server/store/schema.h"
#include "server/values/access.h"
#include "server/values/audit.h"
#include "server/values/events.h"
#include "server/values/job.h"
#include "server/values/job_curves.h"

namespace lynx::server {

// SpecBytes: the canonical bytes of a spec. SpecDigest: their SHA-256, by which the server sees whether two submissions are the
// same.
std::string SpecBytes(const JobSpec& spec);
std::string SpecDigest(const JobSpec& spec);

// The curves of a job. The object does not own them.
struct StoredCurves {
  JobId job;
  const JobCurves* curves = nullptr;
};

// What Store::Open does about a database with an older schema, or with none: it brings it to the present one (kUpgrade); it
// refuses it and leaves it as it is (kRefuse); it makes the tables of an empty database, and refuses an older schema
// (kMakeNew).
enum class OlderSchema { kUpgrade, kRefuse, kMakeNew };

class Store {
 public:
  static constexpr int64_t kEventsPerJob = 10'000;  // only the newest events of a job are kept

  // Opens the store in the database of this engine, and makes its tables if the database is empty. FailedPrecondition: another
  // server uses it, a newer version or another program made it, or it cannot be opened. DataLoss: it is damaged. Each error
  // names the database and says what to do.
  static absl::StatusOr<std::unique_ptr<Store>> Open(std::unique_ptr<Engine> engine, OlderSchema older = OlderSchema::kUpgrade);

  // How messages name the database; without passwords.
  const std::string& name() const { return engine_->name(); }
  // For code that reads and writes the tables directly, without the Store.
  Engine& engine() { return *engine_; }
  // True: the database was empty when it was opened.
  bool is_new() const { return is_new_; }
  // Warnings to log about how the database is run; empty: there are no warnings.
  std::vector<std::string> Warnings() const { return engine_->Warnings(); }

  // Writes all of the durable effects in order, or none of them. ResourceExhausted: the disk is full. DataLoss: the database is
  // damaged. FailedPrecondition: another server has taken the database; this one can never write again. Unavailable: all other
  // errors. Aborted: the connection was lost, and it is not known yet whether the effects were written. Then call Commit again
  // with the same effects: it writes them unless they were written, and returns OK in both cases.
  absl::Status Commit(const std::vector<Effect>& effects);
  // Writes changes of users, tokens and certificates, with the audit record of the request. The errors are those of Commit;
  // after Aborted nobody finds out for the caller whether the changes were written.
  absl::Status CommitAccess(const std::vector<AccessChange>& changes, const AuditRecord& record);

  // The lease by which this server has the database; null: it is in SQLite, which one server uses alone.
  ServerLease* lease() const { return engine_->lease(); }
  // The values that all servers of a store with a lease share, by name. The errors of PutShared are those of Commit.
  absl::StatusOr<std::map<std::string, std::string>> LoadShared();
  absl::Status PutShared(const std::map<std::string, std::string>& values);
  // True: there are jobs, users or nodes in it.
  absl::StatusOr<bool> IsUsed();

  // Finds out whether this server still has the database. FailedPrecondition: another server has taken it. Other errors: it
  // cannot be reached now.
  absl::Status CheckHeld() { return engine_->CheckHeld(); }

  struct StoredJob {
    JobRecord record;
    std::shared_ptr<const Plan> plan;                          // null for jobs that have ended
    std::shared_ptr<const ClusterTopology> cluster = nullptr;  // the plan's cluster, if it has several groups of nodes
  };
  // Returns all jobs. DataLoss: a row has invalid content.
  absl::StatusOr<std::vector<StoredJob>> LoadJobs();
  absl::StatusOr<Controller::Settings> LoadSettings();
  // All users, tokens and certificates, as changes to an empty AccessBook.
  absl::StatusOr<std::vector<AccessChange>> LoadAccess();
  // The newest `limit` records with a sequence below `before` (0: all), newest first. The store keeps the newest million
  // records of changes and the newest 10,000 of refusals.
  absl::StatusOr<std::vector<AuditRecord>> LoadAudit(int64_t limit, int64_t before, bool refused_only);
  // Returns the plan of the job; nullptr: the job has no plan.
  absl::StatusOr<std::shared_ptr<const Plan>> LoadPlan(const JobId& job);
  // Returns the cluster that the job's plan was made for; nullptr: there is no plan, or an older version of the server made it.
  absl::StatusOr<std::shared_ptr<const ClusterTopology>> LoadCluster(const JobId& job);
  // Returns the newest checkpoint of the newest generation that has written one; nullopt: no generation has written one.
  absl::StatusOr<std::optional<InsertCheckpoint>> LoadCheckpoint(const JobId& job);
  // Returns the newest traced step of the job; nullopt: no step has been traced.
  absl::StatusOr<std::optional<StepTrace>> LoadTrace(const JobId& job);
  // Replaces the curves of these jobs in one transaction. Jobs that the store does not know are ignored. The errors are those
  // of Commit.
  absl::Status PutCurves(const std::vector<StoredCurves>& jobs);
  // Returns the curves of the job. They are empty if the job has not done a step, or if the last server that ran the job was of
  // a version that did not store curves.
  absl::StatusOr<JobCurves> LoadCurves(const JobId& job);
  // The newest `limit` events with a sequence above `after` and below `before`, oldest first.
  absl::StatusOr<std::vector<JobEvent>> LoadEvents(const JobId& job, int64_t after, int64_t limit,
                                                   int64_t before = std::numeric_limits<int64_t>::max());

 private:
  friend struct StoreForTests;
  // A transaction of Commit that may or may not have been written. `written` is known after the next transaction has begun.
  struct Doubt {
    int64_t number = 0;
    std::optional<bool> written;
  };

  explicit Store(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  absl::Status Prepare(OlderSchema older);
  // Runs `write`, which gets the number of the transaction, in one transaction. It is rolled back if `write` fails.
  absl::Status Transact(const std::function<absl::Status(int64_t)>& write);
  absl::Status Write(const Effect& effect);
  absl::Status WriteAccess(const AccessChange& change);
  absl::Status WriteAudit(const AuditRecord& record);
  absl::Status WriteNew(const InsertJob& insert);
  absl::Status WriteRecord(const JobRecord& record);
  absl::Status WritePlan(const InsertPlan& insert);
  absl::Status WriteTrace(const InsertTrace& insert);
  absl::Status WriteRanks(const JobRecord& record);
  absl::Status WriteEvent(const InsertEvent& insert);
  absl::Status WriteCordon(const PutCordon& put);
  absl::Status WriteNode(const PutNode& put);
  absl::Status WriteQueue(const PutQueue& put);
  absl::Status Delete(const DeleteJob& job);
  absl::StatusOr<JobRecord> ReadRecord(const Statement& row);
  absl::Status ReadRanks(JobRecord& record);
  absl::Status Damaged(const std::string& what) const;
  // Adds the database's name to the error. If the database is damaged, also adds what to do.
  absl::Status Unreadable(const absl::Status& status) const;
  Statement Select(const std::string& sql) { return Statement(*engine_, sql, StatementUse::kOnce); }
  Statement Kept(const std::string& sql) { return Statement(*engine_, sql, StatementUse::kKept); }
  absl::StatusOr<bool> Next(Statement& row);

  std::unique_ptr<Engine> engine_;
  bool is_new_ = false;
  std::optional<Doubt> doubt_;
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_STORE_STORE_H_

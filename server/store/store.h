// Store: everything that the server must not forget, in one SQLite file. One connection, write-ahead log, exclusive lock,
// synchronous=FULL: what Commit has returned OK for survives kill -9 and a power failure. Commits are batches: the owner
// thread writes all that a round of events decided in one transaction.
//
// Not thread-safe: opened by one thread, then used by the owner thread alone.
#ifndef LYNX_SERVER_STORE_STORE_H_
#define LYNX_SERVER_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/controller/controller.h"
#include "server/store/sqlite.h"
#include "server/values/access.h"
#include "server/values/audit.h"
#include "server/values/events.h"
#include "server/values/job.h"
#include "server/values/job_curves.h"

namespace lynx {

// The canonical bytes of a spec, and their SHA-256, by which two submissions are compared.
std::string SpecBytes(const JobSpec& spec);
std::string SpecDigest(const JobSpec& spec);

// Not owned.
struct StoredCurves {
  JobId job;
  const JobCurves* curves = nullptr;
};

class Store {
 public:
  // 1 had no traces and did not know what plans were made for; 2 knew no cordons and queues, 3 no GPUs' names,
  // 4 neither people nor nodes' certificates, 6 no curves.
  static constexpr int64_t kSchemaVersion = 7;
  static constexpr int64_t kEventsPerJob = 10'000;  // the newest are kept

  // Makes the file if it is not there. FailedPrecondition: another server has it, it was made by a newer version, it is some
  // other program's, or it cannot be opened. DataLoss: it is damaged. Each names the file and says what to do.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path);

  // Durable effects, in order, all or none. ResourceExhausted: the disk is full. DataLoss: the file is damaged.
  absl::Status Commit(const std::vector<Effect>& effects);
  // Changes of who may call, with the record of who asked for them; errors as Commit's.
  absl::Status CommitAccess(const std::vector<AccessChange>& changes, const AuditRecord& record);

  struct StoredJob {
    JobRecord record;
    std::shared_ptr<const Plan> plan;  // of jobs that have not ended
  };
  // All jobs. DataLoss where a row does not hold what it should.
  absl::StatusOr<std::vector<StoredJob>> LoadJobs();
  absl::StatusOr<Controller::Settings> LoadSettings();
  // Who may call, as changes of an empty book.
  absl::StatusOr<std::vector<AccessChange>> LoadAccess();
  // The newest `limit` with a sequence below `before` (0: all), newest first. A million changes and 10,000 refusals are kept.
  absl::StatusOr<std::vector<AuditRecord>> LoadAudit(int64_t limit, int64_t before, bool refused_only);
  // nullptr: the job has none.
  absl::StatusOr<std::shared_ptr<const Plan>> LoadPlan(const JobId& job);
  // What the job's plan was made for; nullptr: it has none, or an older server made it.
  absl::StatusOr<std::shared_ptr<const ClusterTopology>> LoadCluster(const JobId& job);
  // The newest of the newest generation that has written one; nullopt: none has.
  absl::StatusOr<std::optional<InsertCheckpoint>> LoadCheckpoint(const JobId& job);
  // nullopt: none of the job's steps has been traced.
  absl::StatusOr<std::optional<StepTrace>> LoadTrace(const JobId& job);
  // In place of those before, in one transaction; of jobs that the store does not know, nothing. Errors as Commit's.
  absl::Status PutCurves(const std::vector<StoredCurves>& jobs);
  // Empty: none of the job's steps has been done, or an older server knew no curves.
  absl::StatusOr<JobCurves> LoadCurves(const JobId& job);
  // The newest `limit` with a sequence above `after`, oldest first.
  absl::StatusOr<std::vector<JobEvent>> LoadEvents(const JobId& job, int64_t after, int64_t limit,
                                                   int64_t before = std::numeric_limits<int64_t>::max());

  // The file may have so many pages of 4 KiB (or what it has, if that is more): stands for a disk that is full.
  void LimitPages(int64_t pages);

 private:
  Store(std::string path, SqliteHandle db) : path_(std::move(path)), db_(std::move(db)), kept_(db_.get()) {}

  absl::Status Prepare();
  absl::Status CheckIntegrity();
  // Runs `write` in one transaction; what it has written is undone where it fails.
  absl::Status Transact(const std::function<absl::Status()>& write);
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
  // With the file's name, and what to do where it is damaged.
  absl::Status Unreadable(const absl::Status& status) const;
  absl::StatusOr<Statement> Select(const std::string& sql);
  absl::StatusOr<bool> Next(Statement& row);

  const std::string path_;
  SqliteHandle db_;
  KeptStatements kept_;           // those that write
  bool log_has_remains_ = false;  // of a commit that failed
};

}  // namespace lynx

#endif  // LYNX_SERVER_STORE_STORE_H_

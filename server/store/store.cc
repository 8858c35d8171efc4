// See store.h.
#include "server/store/store.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "lynx/v1/jobs.pb.h"
#include "proto/convert.h"
#include "server/wire/messages.h"

namespace lynx::server {
namespace {

constexpr char kJobColumns[] =
    "id, submission, idempotency_key, spec, spec_digest, state, reason, submitted_ns, started_ns, ended_ns, events, "
    "generation, restarts, restart_charge, best_steps, base_steps, resume_step, stop, stop_reason, cancel_requested, "
    "checkpoint_path, checkpoint_step, plan_digest, figures, owner";

// Progress and measurements are stored as a message, because doubles may be NaN, which an SQLite column cannot hold.
std::string FiguresOf(const JobRecord& record) {
  v1::Job figures;
  SetFigures(record, figures);
  return figures.SerializeAsString();
}

}  // namespace

std::string SpecBytes(const JobSpec& spec) { return ToProto(spec).SerializeAsString(); }
std::string SpecDigest(const JobSpec& spec) { return Sha256Hex(SpecBytes(spec)); }

absl::Status Store::Damaged(const std::string& what) const {
  return absl::DataLossError(absl::StrCat(engine_->name(), " is damaged (", what, "): ", engine_->MendAdvice()));
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(std::unique_ptr<Engine> engine, OlderSchema older) {
  std::unique_ptr<Store> store(new Store(std::move(engine)));
  const Engine& opened = *store->engine_;
  const absl::Status status = store->Prepare(older);
  if (status.ok()) return store;
  if (absl::StrContains(status.message(), opened.name())) return status;
  if (status.code() == absl::StatusCode::kDataLoss) return store->Damaged(std::string(status.message()));
  return absl::FailedPreconditionError(
      absl::StrCat("cannot open ", opened.name(), ": ", std::string(status.message()), "; ", opened.OpenAdvice(status)));
}

absl::Status Store::Prepare(OlderSchema older) {
  LYNX_RETURN_IF_ERROR(engine_->Open());
  LYNX_ASSIGN_OR_RETURN(const int64_t schema, engine_->Schema());
  if (schema < 0 || schema > kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(engine_->name(), " has schema ", schema,
                                                      ", made by a newer lynx-server; this one knows schema ", kSchemaVersion,
                                                      ": start the newer one"));
  }
  if (schema < kSchemaVersion && older == OlderSchema::kRefuse) {
    return absl::FailedPreconditionError(
        absl::StrCat(engine_->name(), schema == 0 ? " has no tables of lynx-server: check the address"
                                                  : absl::StrCat(" has schema ", schema, ", and this lynx-server uses schema ",
                                                                 kSchemaVersion, ": start it on this database once")));
  }
  if (schema != 0 && schema < kSchemaVersion && older == OlderSchema::kMakeNew) {
    return absl::FailedPreconditionError(absl::StrCat(engine_->name(), " is not empty: it has schema ", schema,
                                                      " of an older lynx-server; name an empty database"));
  }
  is_new_ = schema == 0;
  LYNX_RETURN_IF_ERROR(engine_->Claim());
  if (schema == kSchemaVersion) return absl::OkStatus();
  LYNX_RETURN_IF_ERROR(engine_->Begin().status());
  absl::Status defined = DefineTables(*engine_, schema);
  if (defined.ok()) defined = engine_->Commit();
  if (defined.ok() || schema == 0) return defined;
  return Annotate(defined, absl::StrCat("cannot bring ", engine_->name(), " from schema ", schema, " to ", kSchemaVersion));
}

absl::Status Store::Commit(const std::vector<Effect>& effects) {
  if (effects.empty() && !doubt_.has_value()) return absl::OkStatus();
  int64_t number = 0;
  const absl::Status status = Transact([&](int64_t begun) -> absl::Status {
    number = begun;
    if (doubt_.has_value() && *doubt_->written) return absl::OkStatus();  // an empty transaction
    for (const Effect& effect : effects) LYNX_RETURN_IF_ERROR(Write(effect));
    return absl::OkStatus();
  });
  const bool written_before = doubt_.has_value() && doubt_->written.value_or(false);
  const bool unknown_before = doubt_.has_value() && !doubt_->written.has_value();
  const bool is_last = status.code() == absl::StatusCode::kFailedPrecondition;  // this server can never write again
  if (!status.ok() && !is_last && (written_before || unknown_before)) return absl::AbortedError(status.message());
  doubt_.reset();
  if (status.code() == absl::StatusCode::kAborted) doubt_ = Doubt{.number = number};
  return status;
}

absl::Status Store::Transact(const std::function<absl::Status(int64_t)>& write) {
  const absl::StatusOr<int64_t> number = engine_->Begin();
  absl::Status status = number.status();
  if (status.ok()) {
    if (doubt_.has_value() && !doubt_->written.has_value()) doubt_->written = *number > doubt_->number;
    status = write(*number);
  }
  if (status.ok()) status = engine_->Commit();
  if (status.ok()) return status;
  if (status.code() != absl::StatusCode::kAborted) engine_->Rollback();
  if (absl::StrContains(status.message(), engine_->name())) return status;
  if (status.code() == absl::StatusCode::kDataLoss) return Damaged(std::string(status.message()));
  return Annotate(status, absl::StrCat("cannot write to ", engine_->name()));
}

absl::Status Store::Write(const Effect& effect) {
  LYNX_CHECK(IsDurable(effect));
  if (const auto* insert = std::get_if<InsertJob>(&effect)) return WriteNew(*insert);
  if (const auto* update = std::get_if<UpdateJob>(&effect)) return WriteRecord(update->job);
  if (const auto* event = std::get_if<InsertEvent>(&effect)) return WriteEvent(*event);
  if (const auto* plan = std::get_if<InsertPlan>(&effect)) return WritePlan(*plan);
  if (const auto* trace = std::get_if<InsertTrace>(&effect)) return WriteTrace(*trace);
  if (const auto* job = std::get_if<DeleteJob>(&effect)) return Delete(*job);
  if (const auto* cordon = std::get_if<PutCordon>(&effect)) return WriteCordon(*cordon);
  if (const auto* node = std::get_if<PutNode>(&effect)) return WriteNode(*node);
  if (const auto* queue = std::get_if<PutQueue>(&effect)) return WriteQueue(*queue);
  if (const auto* audit = std::get_if<InsertAudit>(&effect)) return WriteAudit(audit->record);
  const auto& checkpoint = std::get<InsertCheckpoint>(effect);
  Statement statement = Kept(PutStatement("checkpoints", {"job_id", "generation", "step"}, {"path", "bytes", "time_ns"}));
  return statement.Bind(checkpoint.job.value)
      .Bind(checkpoint.generation.value)
      .Bind(checkpoint.step)
      .Bind(checkpoint.path)
      .Bind(checkpoint.bytes.value)
      .Bind(checkpoint.time.value)
      .Run();
}

absl::Status Store::WritePlan(const InsertPlan& insert) {
  Statement statement = Kept(PutStatement("plans", {"job_id"}, {"digest", "plan", "cluster"}));
  return statement.Bind(insert.job.value)
      .Bind(insert.plan->digest)
      .BindBlob(ToProto(*insert.plan).SerializeAsString())
      .BindBlob(insert.cluster == nullptr ? "" : ToProto(*insert.cluster).SerializeAsString())
      .Run();
}

absl::Status Store::WriteCordon(const PutCordon& put) {
  Statement statement =
      Kept(put.cordon.has_value() ? PutStatement("cordons", {"node"}, {"reason", "drain", "deadline_ns", "since_ns"})
                                  : "DELETE FROM cordons WHERE node=?");
  statement.Bind(put.node.value);
  if (put.cordon.has_value()) {
    statement.Bind(put.cordon->reason)
        .Bind(put.cordon->drain ? 1 : 0)
        .Bind(put.cordon->deadline.value)
        .Bind(put.cordon->since.value);
  }
  return statement.Run();
}

absl::Status Store::WriteNode(const PutNode& put) {
  Statement statement = Kept(put.forgotten ? "DELETE FROM nodes WHERE name=?" : PutStatement("nodes", {"name"}, {}));
  return statement.Bind(put.node.value).Run();
}

absl::Status Store::WriteQueue(const PutQueue& put) {
  Statement statement = Kept(PutStatement("queues", {"name"}, {"weight", "quota", "may_borrow", "managers", "user_quota"}));
  return statement.Bind(put.queue.name)
      .Bind(put.queue.weight)
      .Bind(put.queue.quota)
      .Bind(put.queue.may_borrow ? 1 : 0)
      .Bind(absl::StrJoin(put.queue.managers, ","))
      .Bind(put.queue.user_quota)
      .Run();
}

absl::Status Store::WriteTrace(const InsertTrace& insert) {
  Statement statement = Kept(PutStatement("traces", {"job_id"}, {"trace"}));
  return statement.Bind(insert.job.value).BindBlob(Encode(insert.trace).SerializeAsString()).Run();
}

absl::Status Store::Delete(const DeleteJob& job) {
  for (const char* where : {"plans WHERE job_id", "traces WHERE job_id", "curves WHERE job_id", "ranks WHERE job_id",
                            "events WHERE job_id", "checkpoints WHERE job_id", "jobs WHERE id"}) {
    Statement statement = Kept(absl::StrCat("DELETE FROM ", where, "=?"));
    LYNX_RETURN_IF_ERROR(statement.Bind(job.job.value).Run());
  }
  return absl::OkStatus();
}

absl::Status Store::WriteNew(const InsertJob& insert) {
  const JobRecord& job = insert.job;
  Statement statement = Kept(absl::StrCat("INSERT INTO jobs(", kJobColumns,
                                          ") VALUES(?, ?, ?, ?, ?, 'queued', '', ?, 0, 0, 0, 0, 0, 0, 0, 0, -1, "
                                          "0, '', 0, '', -1, '', ?, ?)"));
  LYNX_RETURN_IF_ERROR(statement.Bind(job.id.value)
                           .Bind(job.submission)
                           .Bind(job.idempotency_key)
                           .BindBlob(SpecBytes(*job.spec))
                           .Bind(job.spec_digest)
                           .Bind(job.submitted.value)
                           .BindBlob("")
                           .Bind(job.owner)
                           .Run());
  return WriteRecord(job);
}

absl::Status Store::WriteRecord(const JobRecord& job) {
  Statement statement = Kept(
      "UPDATE jobs SET state=?, reason=?, started_ns=?, ended_ns=?, events=?, generation=?, "
      "restarts=?, restart_charge=?, best_steps=?, base_steps=?, resume_step=?, stop=?, "
      "stop_reason=?, cancel_requested=?, checkpoint_path=?, checkpoint_step=?, plan_digest=?, "
      "figures=? WHERE id=?");
  LYNX_RETURN_IF_ERROR(statement.Bind(std::string(EnumName(job.state)))
                           .Bind(job.reason)
                           .Bind(job.started.value)
                           .Bind(job.ended.value)
                           .Bind(job.events)
                           .Bind(job.generation.value)
                           .Bind(job.restarts)
                           .Bind(job.restart_charge)
                           .Bind(job.best_steps)
                           .Bind(job.base_steps)
                           .Bind(job.resume_step)
                           .Bind(static_cast<int64_t>(job.stop))
                           .Bind(job.stop_reason)
                           .Bind(job.cancel_requested ? 1 : 0)
                           .Bind(job.checkpoint_path)
                           .Bind(job.checkpoint_step)
                           .Bind(job.plan_digest)
                           .BindBlob(FiguresOf(job))
                           .Bind(job.id.value)
                           .Run());
  return WriteRanks(job);
}

absl::Status Store::WriteRanks(const JobRecord& job) {
  Statement clear = Kept("DELETE FROM ranks WHERE job_id=?");
  LYNX_RETURN_IF_ERROR(clear.Bind(job.id.value).Run());
  Statement insert = Kept("INSERT INTO ranks VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)");
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRecord& rank = job.ranks[r];
    LYNX_RETURN_IF_ERROR(insert.Bind(job.id.value)
                             .Bind(static_cast<int64_t>(r))
                             .Bind(rank.where.node.value)
                             .Bind(rank.where.device)
                             .Bind(rank.host)
                             .Bind(rank.port)
                             .Bind(rank.acknowledged)
                             .Bind(rank.finished ? 1 : 0)
                             .Bind(rank.device_uuid)
                             .Run());
  }
  return absl::OkStatus();
}

absl::Status Store::WriteEvent(const InsertEvent& insert) {
  Statement statement = Kept("INSERT INTO events VALUES(?, ?, ?, ?, ?, ?)");
  LYNX_RETURN_IF_ERROR(statement.Bind(insert.job.value)
                           .Bind(insert.event.sequence)
                           .Bind(insert.event.time.value)
                           .Bind(std::string(EnumName(insert.event.state)))
                           .Bind(insert.event.kind)
                           .Bind(insert.event.reason)
                           .Run());
  Statement trim = Kept("DELETE FROM events WHERE job_id=? AND sequence<=?");
  return trim.Bind(insert.job.value).Bind(insert.event.sequence - kEventsPerJob).Run();
}

absl::Status Store::Unreadable(const absl::Status& status) const {
  if (absl::StrContains(status.message(), engine_->name())) return status;
  if (status.code() == absl::StatusCode::kDataLoss) return Damaged(std::string(status.message()));
  return Annotate(status, absl::StrCat("cannot read ", engine_->name()));
}

absl::StatusOr<bool> Store::Next(Statement& row) {
  const absl::StatusOr<bool> more = row.Next();
  if (!more.ok()) return Unreadable(more.status());
  return more;
}

absl::StatusOr<JobRecord> Store::ReadRecord(const Statement& row) {
  JobRecord job;
  job.id = JobId(row.Text(0));
  const auto damaged = [&](const char* what) { return Damaged(absl::StrCat("job ", job.id.value, ": ", what)); };
  job.submission = row.Int(1);
  job.idempotency_key = row.Text(2);
  job.spec_digest = row.Text(4);
  const std::string spec_bytes = row.Text(3);
  v1::JobSpec spec_message;
  if (Sha256Hex(spec_bytes) != job.spec_digest || !spec_message.ParseFromString(spec_bytes)) {
    return damaged("its spec is not what was written");
  }
  absl::StatusOr<JobSpec> spec = FromProto(spec_message);
  if (!spec.ok()) return damaged(std::string(spec.status().message()).c_str());
  job.spec = std::make_shared<const JobSpec>(*std::move(spec));
  if (!ParseEnum(row.Text(5), job.state)) return damaged("its state is unknown");
  job.reason = row.Text(6);
  job.submitted = Nanos(row.Int(7));
  job.started = Nanos(row.Int(8));
  job.ended = Nanos(row.Int(9));
  job.events = row.Int(10);
  job.generation = Generation(row.Int(11));
  job.restarts = static_cast<int32_t>(row.Int(12));
  job.restart_charge = static_cast<int32_t>(row.Int(13));
  job.best_steps = row.Int(14);
  job.base_steps = row.Int(15);
  job.resume_step = row.Int(16);
  if (row.Int(17) < 0 || row.Int(17) > static_cast<int64_t>(StopKind::kLeave)) return damaged("its stop is unknown");
  job.stop = static_cast<StopKind>(row.Int(17));
  job.stop_reason = row.Text(18);
  job.cancel_requested = row.Int(19) != 0;
  job.checkpoint_path = row.Text(20);
  job.checkpoint_step = row.Int(21);
  job.plan_digest = row.Text(22);
  v1::Job figures;
  if (!figures.ParseFromString(row.Text(23))) return damaged("its figures are not a message");
  GetFigures(figures, job);
  job.owner = row.Text(24);
  return job;
}

absl::Status Store::ReadRanks(JobRecord& job) {
  Statement row = Select(
      "SELECT rank, node, device, host, port, acknowledged, finished, device_uuid FROM "
      "ranks WHERE job_id=? ORDER BY rank");
  row.Bind(job.id.value);
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(row));
    if (!more) return absl::OkStatus();
    if (row.Int(0) != static_cast<int64_t>(job.ranks.size())) {
      return Damaged(absl::StrCat("job ", job.id.value, ": rank ", job.ranks.size(), " is missing"));
    }
    job.ranks.push_back({.where = {NodeId(row.Text(1)), static_cast<int32_t>(row.Int(2))},
                         .device_uuid = row.Text(7),
                         .host = row.Text(3),
                         .port = static_cast<int32_t>(row.Int(4)),
                         .acknowledged = row.Int(5),
                         .finished = row.Int(6) != 0});
  }
}

absl::StatusOr<std::vector<Store::StoredJob>> Store::LoadJobs() {
  std::vector<StoredJob> jobs;
  Statement row = Select(absl::StrCat("SELECT ", kJobColumns, " FROM jobs ORDER BY submission"));
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(row));
    if (!more) break;
    LYNX_ASSIGN_OR_RETURN(JobRecord record, ReadRecord(row));
    jobs.push_back({std::move(record), nullptr});
  }
  for (StoredJob& job : jobs) {
    LYNX_RETURN_IF_ERROR(ReadRanks(job.record));
    if (IsFinal(job.record.state) || job.record.plan_digest.empty()) continue;
    LYNX_ASSIGN_OR_RETURN(job.plan, LoadPlan(job.record.id));
    if (job.plan != nullptr && !job.plan->nodes.empty()) {
      LYNX_ASSIGN_OR_RETURN(job.cluster, LoadCluster(job.record.id));
    }
    const bool placed = job.record.state == JobState::kStarting || job.record.state == JobState::kRunning;
    const size_t ranks = job.plan == nullptr ? 0 : static_cast<size_t>(job.plan->layout.ranks());
    if (job.plan == nullptr || job.plan->digest != job.record.plan_digest || (placed && job.record.ranks.size() != ranks)) {
      return Damaged(absl::StrCat("job ", job.record.id.value, ": its plan is not what was written"));
    }
  }
  return jobs;
}

absl::StatusOr<Controller::Settings> Store::LoadSettings() {
  Controller::Settings settings;
  Statement cordons = Select("SELECT node, reason, drain, deadline_ns, since_ns FROM cordons");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(cordons));
    if (!more) break;
    settings.cordons[NodeId(cordons.Text(0))] = {.reason = cordons.Text(1),
                                                 .drain = cordons.Int(2) != 0,
                                                 .deadline = Nanos(cordons.Int(3)),
                                                 .since = Nanos(cordons.Int(4))};
  }
  Statement queues = Select("SELECT name, weight, quota, may_borrow, managers, user_quota FROM queues");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(queues));
    if (!more) break;
    settings.queues.push_back({.name = queues.Text(0),
                               .weight = static_cast<int32_t>(queues.Int(1)),
                               .quota = static_cast<int32_t>(queues.Int(2)),
                               .may_borrow = queues.Int(3) != 0,
                               .user_quota = static_cast<int32_t>(queues.Int(5)),
                               .managers = absl::StrSplit(queues.Text(4), ',', absl::SkipEmpty())});
  }
  Statement nodes = Select("SELECT name FROM nodes");
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(nodes));
    if (!more) break;
    settings.nodes.push_back(NodeId(nodes.Text(0)));
  }
  return settings;
}

absl::StatusOr<std::shared_ptr<const Plan>> Store::LoadPlan(const JobId& job) {
  Statement row = Select("SELECT plan FROM plans WHERE job_id=?");
  LYNX_ASSIGN_OR_RETURN(const bool found, Next(row.Bind(job.value)));
  if (!found) return std::shared_ptr<const Plan>();
  v1::Plan message;
  if (!message.ParseFromString(row.Text(0))) {
    return Damaged(absl::StrCat("job ", job.value, ": its plan is not a message"));
  }
  absl::StatusOr<Plan> plan = FromProto(message);
  if (!plan.ok()) return Damaged(absl::StrCat("job ", job.value, ": ", std::string(plan.status().message())));
  return std::make_shared<const Plan>(*std::move(plan));
}

absl::StatusOr<std::shared_ptr<const ClusterTopology>> Store::LoadCluster(const JobId& job) {
  Statement row = Select("SELECT cluster FROM plans WHERE job_id=?");
  LYNX_ASSIGN_OR_RETURN(const bool found, Next(row.Bind(job.value)));
  if (!found || row.Text(0).empty()) return std::shared_ptr<const ClusterTopology>();
  v1::ClusterTopology message;
  if (!message.ParseFromString(row.Text(0))) {
    return Damaged(absl::StrCat("job ", job.value, ": what its plan was made for is not a message"));
  }
  absl::StatusOr<ClusterTopology> cluster = FromProto(message);
  if (!cluster.ok()) return Damaged(absl::StrCat("job ", job.value, ": ", std::string(cluster.status().message())));
  return std::make_shared<const ClusterTopology>(*std::move(cluster));
}

absl::StatusOr<std::optional<InsertCheckpoint>> Store::LoadCheckpoint(const JobId& job) {
  Statement row = Select(
      "SELECT generation, step, path, bytes, time_ns FROM checkpoints WHERE job_id=? "
      "ORDER BY generation DESC, step DESC LIMIT 1");
  LYNX_ASSIGN_OR_RETURN(const bool found, Next(row.Bind(job.value)));
  if (!found) return std::nullopt;
  return InsertCheckpoint{.job = job,
                          .generation = Generation(row.Int(0)),
                          .step = row.Int(1),
                          .path = row.Text(2),
                          .bytes = Bytes(row.Int(3)),
                          .time = Nanos(row.Int(4))};
}

absl::StatusOr<std::optional<StepTrace>> Store::LoadTrace(const JobId& job) {
  Statement row = Select("SELECT trace FROM traces WHERE job_id=?");
  LYNX_ASSIGN_OR_RETURN(const bool found, Next(row.Bind(job.value)));
  if (!found) return std::nullopt;
  v1::StepTrace message;
  if (!message.ParseFromString(row.Text(0))) {
    return Damaged(absl::StrCat("job ", job.value, ": its trace is not a message"));
  }
  return Decode(message);
}

absl::Status Store::PutCurves(const std::vector<StoredCurves>& jobs) {
  return Transact([&](int64_t) -> absl::Status {
    for (const StoredCurves& one : jobs) {
      Statement statement = Kept(
          "INSERT INTO curves(job_id, curves) SELECT id, ? FROM jobs WHERE id=? ON CONFLICT(job_id) DO UPDATE SET "
          "curves=excluded.curves");
      LYNX_RETURN_IF_ERROR(statement.BindBlob(Encode(*one.curves).SerializeAsString()).Bind(one.job.value).Run());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<JobCurves> Store::LoadCurves(const JobId& job) {
  Statement row = Select("SELECT curves FROM curves WHERE job_id=?");
  LYNX_ASSIGN_OR_RETURN(const bool found, Next(row.Bind(job.value)));
  if (!found) return JobCurves();
  v1::JobCurves message;
  if (!message.ParseFromString(row.Text(0))) return Damaged(absl::StrCat("job ", job.value, ": its curves are not a message"));
  return Decode(message);
}

absl::StatusOr<std::vector<JobEvent>> Store::LoadEvents(const JobId& job, int64_t after, int64_t limit, int64_t before) {
  Statement row = Select(
      "SELECT * FROM (SELECT sequence, time_ns, state, kind, reason FROM events WHERE "
      "job_id=? AND sequence>? AND sequence<? "
      "ORDER BY sequence DESC LIMIT ?) AS newest ORDER BY sequence");
  row.Bind(job.value).Bind(after).Bind(before).Bind(limit);
  std::vector<JobEvent> events;
  while (true) {
    LYNX_ASSIGN_OR_RETURN(const bool more, Next(row));
    if (!more) return events;
    JobEvent event{.sequence = row.Int(0), .time = Nanos(row.Int(1)), .kind = row.Text(3), .reason = row.Text(4)};
    if (!ParseEnum(row.Text(2), event.state)) {
      return Damaged(absl::StrCat("job ", job.value, ": event ", event.sequence, " has an unknown state"));
    }
    events.push_back(std::move(event));
  }
}

}  // namespace lynx::server

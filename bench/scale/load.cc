#include "bench/scale/load.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lynx/v1/jobs.grpc.pb.h"
#include "proto/convert.h"

namespace lynx::scale {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kAnswerWithin{10};

class Submitter {
 public:
  Submitter(const std::string& server, int64_t steps) : steps_(steps) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
    stub_ = v1::Jobs::NewStub(grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments));
  }

  void Ask(const std::string& key, steady_clock::time_point due) {
    {
      const std::lock_guard lock(mutex_);
      ++open_;
    }
    auto* call = new Call;
    call->due = due;
    *call->request.mutable_spec() = ToProto(SpecOf(key, 1, steps_, 1));
    call->request.set_idempotency_key(key);
    Start(call);
  }

  LoadResult Finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
    for (const auto& [key, id] : ids_) result_.ids.push_back(id);
    std::sort(result_.answers.begin(), result_.answers.end());
    return std::move(result_);
  }

 private:
  struct Call {
    steady_clock::time_point due;
    std::unique_ptr<grpc::ClientContext> context;
    v1::SubmitJobRequest request;
    v1::SubmitJobResponse response;
  };

  void Start(Call* call) {
    call->context = std::make_unique<grpc::ClientContext>();
    call->context->set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
    call->context->set_wait_for_ready(true);
    stub_->async()->SubmitJob(call->context.get(), &call->request, &call->response,
                              [this, call](const grpc::Status& status) { Answered(call, status); });
  }

  void Answered(Call* call, const grpc::Status& status) {
    const bool lost = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                      status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
                      status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    std::unique_ptr<Call> owned(call);
    if (!status.ok() && lost) {
      {
        const std::lock_guard lock(mutex_);
        ++result_.asked_again;
      }
      // A context is for one call. The next call starts from another thread, so that this call can end.
      std::thread([this, next = new Call{.due = call->due, .context = nullptr, .request = call->request, .response = {}}] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        Start(next);
      }).detach();
      return;
    }
    const double millis = std::chrono::duration<double, std::milli>(steady_clock::now() - call->due).count();
    const std::string key = call->request.idempotency_key(), id = call->response.job().id();
    owned.reset();  // the call must be gone before it is counted, because after the last call the channel is destroyed
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      result_.answers.push_back(millis);
      ids_[key] = id;
    } else {
      result_.refused.push_back(status.error_message());
    }
    --open_;
    changed_.notify_all();
  }

  const int64_t steps_;
  std::unique_ptr<v1::Jobs::Stub> stub_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  int open_ = 0;
  std::map<std::string, std::string> ids_;
  LoadResult result_;
};

}  // namespace

JobSpec SpecOf(const std::string& name, int32_t ranks, int64_t steps, int devices) {
  JobSpec spec;
  spec.name = name;
  spec.model = {.layers = ranks > 1 ? 8 : 2, .hidden = 64, .heads = 8, .seq = 32};
  spec.data.path = "/data/text";
  spec.train.steps = steps;
  spec.train.global_batch = std::max(4, ranks);
  spec.resources.min_ranks = spec.resources.max_ranks = ranks;
  if (ranks >= 64) {
    const int tp = std::min(8, devices);
    spec.parallel = {.tp = tp, .pp = 8, .dp = ranks / (8 * tp)};
  }
  Normalize(spec);
  return spec;
}

LoadResult Submit(const std::string& server, const std::string& prefix, double per_second, int count, int64_t steps) {
  Submitter submitter(server, steps);
  const auto begin = steady_clock::now();
  for (int i = 0; i < count; ++i) {
    const auto due = begin + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(i / per_second));
    std::this_thread::sleep_until(due);
    submitter.Ask(absl::StrCat(prefix, i), due);
  }
  return submitter.Finish();
}

}  // namespace lynx::scale

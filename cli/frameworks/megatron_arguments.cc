#include "cli/frameworks/megatron_arguments.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/frameworks/shell_script.h"
#include "cli/spec/yaml_record.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

using M = MegatronArguments;

constexpr MegatronFlag kFlags[] = {
    {"--num-layers", &M::layers, "model.layers"},
    {"--encoder-num-layers", &M::layers, "model.layers"},
    {"--hidden-size", &M::hidden, "model.hidden"},
    {"--ffn-hidden-size", &M::ffn, "model.ffn"},
    {"--num-attention-heads", &M::heads, "model.heads"},
    {"--group-query-attention", &M::grouped, "model.kvHeads"},
    {"--num-query-groups", &M::groups, "model.kvHeads"},
    {"--kv-channels", &M::kv_channels, "model.headDim"},
    {"--seq-length", &M::seq, "model.seq"},
    {"--encoder-seq-length", &M::seq, "model.seq"},
    {"--max-position-embeddings", &M::max_positions, "no field; said if a table of positions has other rows than model.seq"},
    {"--swiglu", &M::swiglu, "model.family llama"},
    {"--squared-relu", &M::squared_relu, "model.planOnly other-activation"},
    {"--position-embedding-type", &M::positions, "model.family, model.planOnly"},
    {"--use-rotary-position-embeddings", &M::old_rotary, "as --position-embedding-type rope"},
    {"--no-position-embedding", &M::no_positions, "as --position-embedding-type none"},
    {"--normalization", &M::normalization, "model.family, model.planOnly"},
    {"--apply-layernorm-1p", &M::norm_offset, "model.planOnly norm-offset"},
    {"--norm-epsilon", &M::norm_epsilon, "model.normEpsilon"},
    {"--layernorm-epsilon", &M::norm_epsilon, "model.normEpsilon"},
    {"--disable-bias-linear", &M::no_bias, "model.family, model.planOnly"},
    {"--add-qkv-bias", &M::qkv_bias, "model.qkvBias"},
    {"--qk-layernorm", &M::qk_norm, "model.qkNorm"},
    {"--untie-embeddings-and-output-weights", &M::untied, "model.tiedEmbeddings"},
    {"--rotary-base", &M::rotary_base, "model.rope.theta"},
    {"--rotary-percent", &M::rotary_percent, "model.rope.dims"},
    {"--rotary-seq-len-interpolation-factor", &M::rotary_interpolation, "model.rope.scaling linear"},
    {"--use-rope-scaling", &M::rope_scaling, "model.rope.scaling llama3"},
    {"--rope-scaling-factor", &M::rope_factor, "model.rope.factor"},
    {"--window-size", &M::window, "model.window"},
    {"--attention-dropout", &M::attention_dropout, "model.dropout"},
    {"--hidden-dropout", &M::hidden_dropout, "model.dropout"},
    {"--vocab-size", &M::vocab, "model.vocab, padded"},
    {"--make-vocab-size-divisible-by", &M::vocab_multiple, "model.vocab, padded"},
    {"--tokenizer-type", &M::tokenizer, "model.vocab"},
    {"--bf16", &M::bf16, "model.dtype"},
    {"--fp16", &M::fp16, "model.dtype bfloat16"},
    {"--grad-reduce-in-bf16", &M::reduces_in_bf16, "model.gradientDtype"},
    {"--accumulate-allreduce-grads-in-fp32", &M::sums_in_fp32, "model.gradientDtype"},
    {"--main-grads-dtype", &M::main_gradients, "model.gradientDtype"},
    {"--use-flash-attn", &M::flash, "model.attention"},
    {"--attention-backend", &M::attention_backend, "model.attention"},
    {"--transformer-impl", &M::transformer_impl, "model.attention"},
    {"--use-local-spec", &M::local, "model.attention"},
    {"--fp8-format", &M::fp8_format, "model.matmulType"},
    {"--fp8-hybrid", &M::fp8_hybrid, "model.matmulType"},
    {"--fp8-e4m3", &M::fp8_e4m3, "model.matmulType"},
    {"--fp8-recipe", &M::fp8_recipe, "model.matmulType"},
    {"--fp4-format", &M::fp4_format, "model.matmulType"},
    {"--fp4-recipe", &M::fp4_recipe, "model.matmulType"},
    {"--num-experts", &M::experts, "model.moe.experts"},
    {"--moe-router-topk", &M::top_k, "model.moe.topK"},
    {"--moe-ffn-hidden-size", &M::expert_ffn, "model.moe.ffn"},
    {"--moe-layer-freq", &M::layers_with_experts, "model.moe.denseLayers"},
    {"--moe-shared-expert-intermediate-size", &M::shared_ffn, "model.moe.sharedFfn"},
    {"--moe-shared-expert-gate", &M::shared_gate, "model.moe.sharedGate"},
    {"--multi-latent-attention", &M::latent, "model.latent"},
    {"--q-lora-rank", &M::query_rank, "model.latent.queryRank"},
    {"--kv-lora-rank", &M::kv_rank, "model.latent.kvRank"},
    {"--qk-head-dim", &M::plain_dims, "model.headDim, without the rotated part"},
    {"--qk-pos-emb-head-dim", &M::rotary_dims, "model.rope.dims, with latent attention"},
    {"--v-head-dim", &M::value_dim, "model.latent.valueDim"},
    {"--rope-type", &M::rope_type, "model.rope.scaling, with latent attention"},
    {"--rotary-scaling-factor", &M::yarn_factor, "model.rope.factor, with latent attention"},
    {"--mscale", &M::mscale, "model.rope.attentionFactor"},
    {"--mscale-all-dim", &M::mscale_all_dim, "model.rope.mscaleAllDim"},
    {"--moe-router-pre-softmax", &M::pre_softmax, "model.moe.normalized false"},
    {"--moe-router-score-function", &M::score_function, "model.moe.scores"},
    {"--moe-router-topk-scaling-factor", &M::weight_scale, "model.moe.weightScale"},
    {"--moe-router-enable-expert-bias", &M::expert_bias, "model.moe.routerBias"},
    {"--moe-router-bias-update-rate", &M::bias_rate, "model.moe.biasRate"},
    {"--moe-router-load-balancing-type", &M::balancing, "model.moe.auxLoss"},
    {"--moe-aux-loss-coeff", &M::aux_loss, "model.moe.auxLoss"},
    {"--moe-z-loss-coeff", &M::z_loss, "model.moe.zLoss"},
    {"--moe-expert-capacity-factor", &M::capacity, "model.moe.capacity"},
    {"--moe-pad-expert-input-to-capacity", &M::pads_experts, "model.moe.capacity"},
    {"--moe-token-drop-policy", &M::drop_policy, "no field; said if it is not position"},
    {"--moe-token-dispatcher-type", &M::dispatcher, "no field; said if it is not alltoall"},
    {"--moe-grouped-gemm", &M::grouped_products, "no field; said if it is absent"},
    {"--expert-model-parallel-size", &M::ep, "parallel.ep"},
    {"--expert-tensor-parallel-size", &M::expert_tp, "parallel.ep"},
    {"--tensor-model-parallel-size", &M::tp, "parallel.tp"},
    {"--model-parallel-size", &M::tp, "parallel.tp"},
    {"--pipeline-model-parallel-size", &M::pp, "parallel.pp"},
    {"--context-parallel-size", &M::cp, "parallel.cp"},
    {"--num-layers-per-virtual-pipeline-stage", &M::layers_per_virtual, "parallel.virtualStages"},
    {"--num-virtual-stages-per-pipeline-rank", &M::virtual_stages, "parallel.virtualStages"},
    {"--pipeline-model-parallel-layout", &M::layout, "parallel.virtualStages, parallel.stageLayers"},
    {"--decoder-first-pipeline-num-layers", &M::first_layers, "parallel.stageLayers"},
    {"--decoder-last-pipeline-num-layers", &M::last_layers, "parallel.stageLayers"},
    {"--account-for-embedding-in-pipeline-split", &M::embedding_counts, "parallel.stageLayers"},
    {"--account-for-loss-in-pipeline-split", &M::loss_counts, "parallel.stageLayers"},
    {"--sequence-parallel", &M::sequence_parallel, "parallel.sequenceParallel"},
    {"--use-tp-pp-dp-mapping", &M::replica_order, "parallel.rankOrder"},
    {"--use-distributed-optimizer", &M::distributed_optimizer, "parallel.zero optimizer"},
    {"--num-distributed-optimizer-instances", &M::instances, "parallel.zeroGroup"},
    {"--use-megatron-fsdp", &M::fsdp, "parallel.zero"},
    {"--use-custom-fsdp", &M::fsdp, "parallel.zero"},
    {"--data-parallel-sharding-strategy", &M::shards, "parallel.zero"},
    {"--overlap-grad-reduce", &M::overlap_reduce, "no field; audits count it"},
    {"--overlap-param-gather", &M::overlap_gather, "no field; audits count it"},
    {"--bert-no-binary-head", &M::no_binary_head, "model.planOnly encoder"},
    {"--recompute-granularity", &M::granularity, "recompute"},
    {"--recompute-method", &M::method, "recompute"},
    {"--recompute-num-layers", &M::recompute_layers, "recomputeOptions.layers"},
    {"--recompute-activations", &M::recompute_activations, "recompute selective"},
    {"--recompute-modules", &M::recompute_modules, "recomputeOptions.modules"},
    {"--moe-layer-recompute", &M::moe_recompute, "recomputeOptions.modules moe"},
    {"--micro-batch-size", &M::micro_batch, "train.microBatch"},
    {"--global-batch-size", &M::global_batch, "train.globalBatch"},
    {"--train-iters", &M::steps, "train.steps"},
    {"--train-samples", &M::samples, "train.steps"},
    {"--optimizer", &M::optimizer, "train.optimizer"},
    {"--lr", &M::lr, "train.optimizer.lr"},
    {"--min-lr", &M::min_lr, "train.minLr"},
    {"--lr-decay-style", &M::decay_style, "train.schedule"},
    {"--lr-warmup-iters", &M::warmup_steps, "train.warmupSteps"},
    {"--lr-warmup-samples", &M::warmup_samples, "train.warmupSteps"},
    {"--lr-warmup-fraction", &M::warmup_fraction, "train.warmupSteps"},
    {"--adam-beta1", &M::beta1, "train.optimizer.beta1"},
    {"--adam-beta2", &M::beta2, "train.optimizer.beta2"},
    {"--adam-eps", &M::eps, "train.optimizer.eps"},
    {"--weight-decay", &M::weight_decay, "train.optimizer.weightDecay"},
    {"--clip-grad", &M::clip_grad, "train.optimizer.clipNorm"},
    {"--seed", &M::seed, "train.seed"},
    {"--data-path", &M::data_path, "data.path"},
    {"--save", &M::save, "checkpoint.directory"},
    {"--save-interval", &M::save_interval, "checkpoint.everySteps"},
};

constexpr char kEightBitWeights[] = "weights are counted in 16 bits, beside their copies in 8 bits";
constexpr char kFourBitWeights[] = "weights are counted in 16 bits, beside their copies in 4 bits";
constexpr char kSharedOverlap[] =
    "the plan runs what every token passes one after the other with the experts, and only its weight gradients beside a "
    "transfer";
constexpr char kGroupLimits[] = "the plan lets a token choose among all experts";
constexpr char kChoice[] = "experts are planned as chosen by the softmax of the router's scores alone";
constexpr char kExpertOverlap[] = "not counted: the plan exposes the all-to-alls of experts";
constexpr char kStates[] = "the plan counts optimizer states and master weights in 32 bits each";
constexpr char kCopies[] = "not planned; the plan keeps states and activations on the device";
constexpr char kUneven[] = "the plan has the embedding on the stage of the first layers";
constexpr char kHybrid[] = "layers of several kinds are not planned";
constexpr char kTpOverlap[] = "not counted: the plan exposes collectives of tensor parallelism";

constexpr MegatronMissing kMissing[] = {
    {"--moe-shared-expert-overlap", MissingFlag::kSaid, kSharedOverlap},
    {"--moe-latent-size", MissingFlag::kRefused, "experts of another hidden size are not planned"},
    {"--moe-extended-tp", MissingFlag::kRefused, "experts sharded over all ranks at once are not planned"},
    {"--moe-router-num-groups", MissingFlag::kSaid, kGroupLimits},
    {"--moe-router-group-topk", MissingFlag::kSaid, kGroupLimits},
    {"--moe-router-topk-limited-devices", MissingFlag::kSaid, kGroupLimits},
    {"--moe-input-jitter-eps", MissingFlag::kSaid, kChoice},
    {"--moe-expert-rank-capacity-factor", MissingFlag::kSaid, "a job has a capacity of each expert, not of each rank"},
    {"--overlap-moe-expert-parallel-comm", MissingFlag::kSaid, kExpertOverlap},
    {"--moe-use-upcycling", MissingFlag::kSaid, "Lynx does not read checkpoints of Megatron-LM"},
    {"--hybrid-layer-pattern", MissingFlag::kRefused, kHybrid},
    {"--hybrid-override-pattern", MissingFlag::kRefused, kHybrid},
    {"--hybrid-attention-ratio", MissingFlag::kRefused, kHybrid},
    {"--heterogeneous-layers-config-path", MissingFlag::kRefused, kHybrid},
    {"--heterogeneous-layers-config-encoded-json", MissingFlag::kRefused, kHybrid},
    {"--linear-attention-freq", MissingFlag::kRefused, kHybrid},
    {"--experimental-attention-variant", MissingFlag::kRefused, "this kind of attention is not planned"},
    {"--mtp-num-layers", MissingFlag::kRefused, "layers that predict several tokens are not planned"},
    {"--yaml-cfg", MissingFlag::kRefused, "the values are in another file; give them as flags"},
    {"--use-checkpoint-args", MissingFlag::kRefused, "the values are in a checkpoint; give them as flags"},
    {"--decoder-num-layers", MissingFlag::kRefused, "models with an encoder and a decoder are not planned"},
    {"--decoder-seq-length", MissingFlag::kSaid, "models with an encoder and a decoder are not planned"},
    {"--quick-geglu", MissingFlag::kRefused, "this activation function is not planned"},
    {"--fp8-param-gather", MissingFlag::kSaid, kEightBitWeights},
    {"--fp8-param", MissingFlag::kSaid, kEightBitWeights},
    {"--fp4-param-gather", MissingFlag::kSaid, kFourBitWeights},
    {"--fp4-param", MissingFlag::kSaid, kFourBitWeights},
    {"--first-last-layers-bf16", MissingFlag::kSaid, "the products of all layers are counted in 8 or 4 bits"},
    {"--fp32-residual-connection", MissingFlag::kSaid, "the plan counts residuals in the type of the activations"},
    {"--use-precision-aware-optimizer", MissingFlag::kSaid, kStates},
    {"--main-params-dtype", MissingFlag::kSaid, kStates},
    {"--exp-avg-dtype", MissingFlag::kSaid, kStates},
    {"--exp-avg-sq-dtype", MissingFlag::kSaid, kStates},
    {"--optimizer-cpu-offload", MissingFlag::kSaid, kCopies},
    {"--optimizer-offload-fraction", MissingFlag::kSaid, kCopies},
    {"--overlap-cpu-optimizer-d2h-h2d", MissingFlag::kSaid, kCopies},
    {"--cpu-offloading-num-layers", MissingFlag::kSaid, kCopies},
    {"--fine-grained-activation-offloading", MissingFlag::kSaid, kCopies},
    {"--offload-modules", MissingFlag::kSaid, kCopies},
    {"--distribute-saved-activations", MissingFlag::kSaid,
     "the plan counts the input of a recomputed layer whole on each rank"},
    {"--standalone-embedding-stage", MissingFlag::kSaid, kUneven},
    {"--microbatch-group-size-per-virtual-pipeline-stage", MissingFlag::kSaid,
     "the plan's interleaved schedule has groups of pp"},
    {"--rampup-batch-size", MissingFlag::kSaid, "the plan is for the full batch"},
    {"--step-batch-size-schedule", MissingFlag::kSaid, "the plan is for the full batch"},
    {"--tp-comm-overlap", MissingFlag::kSaid, kTpOverlap},
    {"--tp-comm-overlap-cfg", MissingFlag::kSaid, kTpOverlap},
    {"--defer-embedding-wgrad-compute", MissingFlag::kSaid, "the plan computes this gradient in the backward pass"},
    {"--delay-wgrad-compute", MissingFlag::kSaid, "the plan computes weight gradients in the backward pass"},
    {"--use-torch-fsdp2", MissingFlag::kSaid, "not read; --use-megatron-fsdp is"},
    {"--cp-comm-type", MissingFlag::kSaid, "the plan counts context parallelism as a ring", "p2p"},
    {"--hierarchical-context-parallel-sizes", MissingFlag::kSaid, "the plan counts context parallelism as a ring"},
    {"--cuda-graph-impl", MissingFlag::kSaid, "the plan counts no time for launches", "none"},
    {"--enable-cuda-graph", MissingFlag::kSaid, "the plan counts no time for launches", "none"},
    {"--external-cuda-graph", MissingFlag::kSaid, "the plan counts no time for launches", "none"},
    {"--no-rope-freq", MissingFlag::kSaid, "the plan counts rotary positions in every layer"},
    {"--window-attn-skip-freq", MissingFlag::kSaid, "the plan has one window for all layers"},
    {"--apply-residual-connection-post-layernorm", MissingFlag::kSaid, "the plan adds residuals before the norm"},
    {"--decoupled-lr", MissingFlag::kSaid, "a job has one learning rate"},
    {"--decoupled-min-lr", MissingFlag::kSaid, "a job has one learning rate"},
    {"--lr-decay-iters", MissingFlag::kSaid, "the learning rate of a job decays until the last step"},
    {"--lr-decay-samples", MissingFlag::kSaid, "the learning rate of a job decays until the last step"},
    {"--lr-warmup-init", MissingFlag::kSaid, "the warm-up of a job begins with 0"},
    {"--load", MissingFlag::kSaid, "Lynx does not read checkpoints of Megatron-LM"},
    {"--pretrained-checkpoint", MissingFlag::kSaid, "Lynx does not read checkpoints of Megatron-LM"},
    {"--valid-data-path", MissingFlag::kSaid, "held-out data are data.validationPath, with train.evalEvery"},
    {"--train-data-path", MissingFlag::kSaid, "not read; set data.path"},
    {"--data-args-path", MissingFlag::kSaid, "not read; set data.path"},
};

// Logging, data, tokenizers, checkpoints, initial values, faults, launching. Also flags for kernels that every plan counts
// (fusions), and flags that state what every plan assumes.
constexpr const char* kOthers[] = {
    "--adlr-autoresume",
    "--adlr-autoresume-interval",
    "--align-param-gather",
    "--app-tag-run-name",
    "--app-tag-run-version",
    "--async-save",
    "--attention-softmax-in-fp32",
    "--auto-detect-ckpt-format",
    "--apply-query-key-layer-scaling",
    "--barrier-with-L1-time",
    "--calculate-per-token-loss",
    "--check-for-nan-in-loss-and-grad",
    "--check-weight-hash-across-dp-replicas-interval",
    "--ckpt-assume-constant-structure",
    "--ckpt-convert-format",
    "--ckpt-convert-save",
    "--ckpt-format",
    "--ckpt-fully-parallel-load",
    "--ckpt-fully-parallel-save",
    "--ckpt-step",
    "--cross-entropy-fusion-impl",
    "--cross-entropy-loss-fusion",
    "--data-cache-path",
    "--data-parallel-random-init",
    "--dataloader-type",
    "--ddp-average-in-collective",
    "--ddp-bucket-size",
    "--ddp-num-buckets",
    "--ddp-pad-buckets-for-high-nccl-busbw",
    "--deterministic-mode",
    "--dist-ckpt-format",
    "--dist-ckpt-strictness",
    "--distributed-backend",
    "--distributed-timeout-minutes",
    "--empty-unused-memory-level",
    "--enable-one-logger",
    "--end-weight-decay",
    "--eod-mask-loss",
    "--error-injection-rate",
    "--error-injection-type",
    "--eval-interval",
    "--eval-iters",
    "--exit-duration-in-mins",
    "--exit-interval",
    "--exit-on-missing-checkpoint",
    "--exit-signal-handler",
    "--finetune",
    "--fp8-amax-compute-algo",
    "--fp8-amax-history-len",
    "--fp8-interval",
    "--fp8-margin",
    "--fp8-wgrad",
    "--no-fp8-wgrad",
    "--high-priority-stream-groups",
    "--hysteresis",
    "--init-method-std",
    "--init-method-xavier-uniform",
    "--initial-loss-scale",
    "--lazy-mpu-init",
    "--local-rank",
    "--log-batch-size-to-tensorboard",
    "--log-energy",
    "--log-interval",
    "--log-learning-rate-to-tensorboard",
    "--log-loss-scale-to-tensorboard",
    "--log-memory-to-tensorboard",
    "--log-num-zeros-in-grad",
    "--log-params-norm",
    "--log-progress",
    "--log-straggler",
    "--log-throughput",
    "--log-timers-to-tensorboard",
    "--log-validation-ppl-to-tensorboard",
    "--log-world-size-to-tensorboard",
    "--logging-level",
    "--loss-scale",
    "--loss-scale-window",
    "--lr-wsd-decay-iters",
    "--lr-wsd-decay-samples",
    "--lr-wsd-decay-style",
    "--manual-gc",
    "--manual-gc-eval",
    "--manual-gc-interval",
    "--memory-snapshot-path",
    "--merge-file",
    "--mid-level-dataset-surplus",
    "--min-loss-scale",
    "--mmap-warmup",
    "--mock-data",
    "--moe-apply-probs-on-input",
    "--moe-deepep-num-sms",
    "--moe-enable-deepep",
    "--moe-flex-dispatcher-backend",
    "--moe-hybridep-num-sms",
    "--moe-per-layer-logging",
    "--moe-permute-fusion",
    "--moe-router-dtype",
    "--moe-router-force-load-balancing",
    "--moe-router-fusion",
    "--moe-router-padding-for-fp8",
    "--moe-router-padding-for-quantization",
    "--moe-use-legacy-grouped-gemm",
    "--nccl-communicator-config-path",
    "--no-async-tensor-model-parallel-allreduce",
    "--no-bias-dropout-fusion",
    "--no-bias-gelu-fusion",
    "--no-bias-swiglu-fusion",
    "--no-check-for-nan-in-loss-and-grad",
    "--no-create-attention-mask-in-dataloader",
    "--no-data-sharding",
    "--no-gradient-accumulation-fusion",
    "--no-initialization",
    "--no-load-optim",
    "--no-load-rng",
    "--no-masked-softmax-fusion",
    "--no-mmap-bin-files",
    "--no-one-logger",
    "--no-persist-layer-norm",
    "--no-query-key-layer-scaling",
    "--no-rope-fusion",
    "--no-save-optim",
    "--no-save-rng",
    "--no-scatter-gather-tensors-in-pipeline",
    "--non-persistent-ckpt-type",
    "--non-persistent-save-interval",
    "--null-tokenizer-eod-id",
    "--null-tokenizer-pad-id",
    "--num-dataset-builder-threads",
    "--num-workers",
    "--nvtx-ranges",
    "--one-logger-async",
    "--one-logger-project",
    "--one-logger-run-name",
    "--override-opt_param-scheduler",
    "--override-opt-param-scheduler",

    "--overlap-p2p-communication",

    "--overlap-param-gather-with-optimizer-step",
    "--pin-cpu-grads",
    "--pin-cpu-params",
    "--profile",
    "--profile-ranks",
    "--profile-step-end",
    "--profile-step-start",
    "--record-memory-history",
    "--rerun-mode",
    "--reset-attention-mask",
    "--reset-position-ids",
    "--result-rejected-tracker-filename",
    "--sample-rate",
    "--save-retain-interval",
    "--sgd-momentum",
    "--skip-train",
    "--special-tokens",
    "--split",
    "--start-weight-decay",
    "--straggler-minmax-count",
    "--te-rng-tracker",
    "--tensorboard-dir",
    "--tensorboard-log-interval",
    "--tensorboard-queue-size",
    "--test-data-path",
    "--test-mode",
    "--tiktoken-num-special-tokens",
    "--tiktoken-pattern",
    "--timing-log-level",
    "--timing-log-option",
    "--tokenizer-hf-include-special-tokens",
    "--tokenizer-metadata",
    "--tokenizer-model",
    "--train-sync-interval",
    "--trust-remote-code",
    "--use-checkpoint-opt_param-scheduler",
    "--use-checkpoint-opt-param-scheduler",
    "--use-cpu-initialization",
    "--use-dist-ckpt",
    "--use-fused-rope",
    "--use-gloo-process-groups",
    "--disable-gloo-process-groups",
    "--use-mcore-models",
    "--use-mp-args-from-checkpoint-args",
    "--use-persistent-ckpt-worker",
    "--use-pytorch-profiler",
    "--use-ring-exchange-p2p",
    "--use-sharp",
    "--use-te",
    "--use-tokenizer-model-from-checkpoint-args",
    "--vocab-extra-ids",
    "--vocab-file",
    "--wandb-entity",
    "--wandb-exp-name",
    "--wandb-project",
    "--wandb-save-dir",
    "--warmup",
    "--weight-decay-incr-style",
};

class Reader {
 public:
  Reader(const std::vector<std::string>& words, const std::string& place) : words_(words), place_(place) {}

  absl::StatusOr<ReadMegatronArguments> Run() {
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      if (!absl::StartsWith(word, "--")) return Stray(word);
      const size_t equals = word.find('=');
      inline_value_ = equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1));
      LYNX_RETURN_IF_ERROR(ReadFlag(word.substr(0, equals)));
    }
    return std::move(read_);
  }

 private:
  absl::Status Error(const std::string& why) const { return absl::InvalidArgumentError(absl::StrCat(place_, ": ", why)); }

  absl::Status Stray(const std::string& word) const {
    if (!HasUnknown(word)) return Error(absl::StrCat("'", word, "' follows no flag that takes a value"));
    if (IsUnknownRest(word)) {
      return Error(absl::StrCat("the arguments hold ", FirstUnknown(word),
                                ", which the script adds only if a test holds that its text does not decide; give the "
                                "variables of the test, or all of the arguments, with --set NAME=VALUE"));
    }
    return Error(absl::StrCat("the script does not set ", FirstUnknown(word),
                              ", which stands among the arguments; give it with --set",
                              " NAME=VALUE, or --set NAME= if it is empty"));
  }

  absl::Status ReadFlag(const std::string& flag) {
    for (const MegatronFlag& known : kFlags) {
      if (flag == known.flag) return Take(known);
    }
    for (const MegatronMissing& missing : kMissing) {
      if (flag != missing.flag) continue;
      const std::vector<std::string> values = Values();
      if (values.size() == 1 && values[0] == missing.neutral) return absl::OkStatus();
      const std::string shown = absl::StrCat(flag, Shown(values), ": ", missing.why);
      if (missing.kind == MissingFlag::kRefused) return Error(shown);
      read_.not_taken.push_back(shown);
      return absl::OkStatus();
    }
    const std::vector<std::string> values = Values();
    const bool other = std::any_of(std::begin(kOthers), std::end(kOthers), [&](const char* known) { return flag == known; });
    if (!other) read_.unknown.push_back(absl::StrCat(flag, Shown(values)));
    for (const std::string& value : values) {
      if (HasUnknown(value)) read_.unset.push_back(absl::StrCat(FirstUnknown(value), " (", flag, ")"));
    }
    return absl::OkStatus();
  }

  static std::string Shown(const std::vector<std::string>& values) {
    std::string text;
    for (const std::string& value : values) absl::StrAppend(&text, " ", ShownWord(value));
    return text;
  }

  // Returns the words up to the next flag.
  std::vector<std::string> Values() {
    std::vector<std::string> values;
    if (inline_value_) values.push_back(*inline_value_);
    if (inline_value_) return values;
    while (at_ < words_.size() && !absl::StartsWith(words_[at_], "--") && !IsUnknownRest(words_[at_])) {
      values.push_back(words_[at_++]);
    }
    return values;
  }

  absl::Status Take(const MegatronFlag& known) {
    return std::visit(
        [&](auto member) -> absl::Status {
          if constexpr (std::is_same_v<decltype(member), bool M::*>) {
            if (inline_value_) return Error(absl::StrCat(known.flag, " takes no value"));
            read_.values.*member = true;
            return absl::OkStatus();
          } else if constexpr (std::is_same_v<decltype(member), M::Words M::*>) {
            read_.values.*member = Values();
            return absl::OkStatus();
          } else {
            std::string text;
            LYNX_RETURN_IF_ERROR(OneValue(known.flag, text));
            return Parse(known.flag, text, read_.values.*member);
          }
        },
        known.value);
  }

  absl::Status OneValue(const char* flag, std::string& text) {
    if (!inline_value_ && (at_ >= words_.size() || absl::StartsWith(words_[at_], "--"))) {
      return Error(absl::StrCat(flag, " has no value"));
    }
    text = inline_value_ ? *inline_value_ : words_[at_++];
    return absl::OkStatus();
  }

  absl::Status Known(const char* flag, const std::string& text) const {
    if (!HasUnknown(text)) return absl::OkStatus();
    return Error(absl::StrCat(flag, " is ", ShownWord(text), ", and the script does not set ", FirstUnknown(text),
                              "; give it with --set NAME=VALUE"));
  }
  absl::Status Parse(const char* flag, const std::string& text, M::Count& out) const {
    LYNX_RETURN_IF_ERROR(Known(flag, text));
    int64_t value = 0;
    constexpr int64_t kMaxCount = int64_t{1} << 50;
    if (!absl::SimpleAtoi(text, &value) || value < 0 || value > kMaxCount) {
      return Error(absl::StrCat(flag, " is '", text, "': expected a whole number"));
    }
    out = value;
    return absl::OkStatus();
  }
  absl::Status Parse(const char* flag, const std::string& text, M::Real& out) const {
    LYNX_RETURN_IF_ERROR(Known(flag, text));
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) {
      return Error(absl::StrCat(flag, " is '", text, "': expected a number"));
    }
    out = value;
    return absl::OkStatus();
  }
  // Variables in the names of folders may be unknown, because a plan does not use these names.
  absl::Status Parse(const char* flag, const std::string& text, M::Text& out) const {
    if (std::string(flag) != "--save") LYNX_RETURN_IF_ERROR(Known(flag, text));
    out = text;
    return absl::OkStatus();
  }

  const std::vector<std::string>& words_;
  const std::string& place_;
  size_t at_ = 0;
  std::optional<std::string> inline_value_;  // the value, if the argument has the form --flag=value
  ReadMegatronArguments read_;
};

}  // namespace

absl::Span<const MegatronFlag> MegatronFlags() { return kFlags; }
absl::Span<const MegatronMissing> MegatronMissingFlags() { return kMissing; }
absl::Span<const char* const> MegatronOtherFlags() { return kOthers; }

absl::StatusOr<ReadMegatronArguments> ReadArguments(const std::vector<std::string>& words, const std::string& place) {
  return Reader(words, place).Run();
}

}  // namespace lynx::cli

#include "cli/frameworks/nemo_keys.h"

#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"

namespace lynx::cli {
namespace {

using enum NemoKeyKind;

constexpr NemoKey kKeys[] = {
    {"model.num_layers", kValue, "--num-layers"},
    {"model.hidden_size", kValue, "--hidden-size"},
    {"model.ffn_hidden_size", kValue, "--ffn-hidden-size"},
    {"model.num_attention_heads", kValue, "--num-attention-heads"},
    {"model.num_query_groups", kValue, "--num-query-groups"},
    {"model.kv_channels", kValue, "--kv-channels"},
    {"model.encoder_seq_length", kValue, "--seq-length"},
    {"model.max_position_embeddings", kValue, "--max-position-embeddings"},
    {"model.hidden_dropout", kValue, "--hidden-dropout"},
    {"model.attention_dropout", kValue, "--attention-dropout"},
    {"model.layernorm_epsilon", kValue, "--norm-epsilon"},
    {"model.make_vocab_size_divisible_by", kValue, "--make-vocab-size-divisible-by"},
    {"model.vocab_size", kValue, "--vocab-size"},
    {"model.bias", kUnless, "--disable-bias-linear"},
    {"model.qk_layernorm", kFlag, "--qk-layernorm"},
    {"model.share_embeddings_and_output_weights", kUnless, "--untie-embeddings-and-output-weights"},
    {"model.position_embedding_type", kValue, "--position-embedding-type"},
    {"model.rotary_percentage", kValue, "--rotary-percent"},
    {"model.rotary_base", kValue, "--rotary-base"},
    {"model.seq_len_interpolation_factor", kValue, "--rotary-seq-len-interpolation-factor"},
    {"model.scale_positional_embedding", kFlag, "--use-rope-scaling"},
    {"model.tokenizer.type", kValue, "--tokenizer-type"},
    {"model.tensor_model_parallel_size", kValue, "--tensor-model-parallel-size"},
    {"model.pipeline_model_parallel_size", kValue, "--pipeline-model-parallel-size"},
    {"model.context_parallel_size", kValue, "--context-parallel-size"},
    {"model.expert_model_parallel_size", kValue, "--expert-model-parallel-size"},
    {"model.num_moe_experts", kValue, "--num-experts"},
    {"model.expert_tensor_parallel_size", kValue, "--expert-tensor-parallel-size"},
    {"model.moe_router_topk", kValue, "--moe-router-topk"},
    {"model.moe_ffn_hidden_size", kValue, "--moe-ffn-hidden-size"},
    {"model.moe_router_load_balancing_type", kValue, "--moe-router-load-balancing-type"},
    {"model.moe_aux_loss_coeff", kValue, "--moe-aux-loss-coeff"},
    {"model.moe_z_loss_coeff", kValue, "--moe-z-loss-coeff"},
    {"model.moe_expert_capacity_factor", kValue, "--moe-expert-capacity-factor"},
    {"model.moe_pad_expert_input_to_capacity", kFlag, "--moe-pad-expert-input-to-capacity"},
    {"model.moe_token_dispatcher_type", kValue, "--moe-token-dispatcher-type"},
    {"model.moe_router_pre_softmax", kFlag, "--moe-router-pre-softmax"},
    {"model.moe_grouped_gemm", kFlag, "--moe-grouped-gemm"},
    {"model.moe_shared_expert_intermediate_size", kValue, "--moe-shared-expert-intermediate-size"},
    {"model.moe_layer_freq", kValue, "--moe-layer-freq"},
    {"model.multi_latent_attention", kFlag, "--multi-latent-attention"},
    {"model.q_lora_rank", kValue, "--q-lora-rank"},
    {"model.kv_lora_rank", kValue, "--kv-lora-rank"},
    {"model.qk_head_dim", kValue, "--qk-head-dim"},
    {"model.qk_pos_emb_head_dim", kValue, "--qk-pos-emb-head-dim"},
    {"model.v_head_dim", kValue, "--v-head-dim"},
    {"model.rope_type", kValue, "--rope-type"},
    {"model.rotary_scaling_factor", kValue, "--rotary-scaling-factor"},
    {"model.mscale", kValue, "--mscale"},
    {"model.mscale_all_dim", kValue, "--mscale-all-dim"},
    {"model.virtual_pipeline_model_parallel_size", kValue, "--num-virtual-stages-per-pipeline-rank"},
    {"model.sequence_parallel", kFlag, "--sequence-parallel"},
    {"model.use_tp_pp_dp_mapping", kFlag, "--use-tp-pp-dp-mapping"},
    {"model.activations_checkpoint_granularity", kValue, "--recompute-granularity"},
    {"model.activations_checkpoint_method", kValue, "--recompute-method"},
    {"model.activations_checkpoint_num_layers", kValue, "--recompute-num-layers"},
    {"model.recompute_modules", kValue, "--recompute-modules"},
    {"model.micro_batch_size", kValue, "--micro-batch-size"},
    {"model.global_batch_size", kValue, "--global-batch-size"},
    {"model.rampup_batch_size", kValue, "--rampup-batch-size"},
    {"model.seed", kValue, "--seed"},
    {"model.use_flash_attention", kFlag, "--use-flash-attn"},
    {"model.fp8", kFlag, "--fp8-hybrid"},
    {"model.fp32_residual_connection", kFlag, "--fp32-residual-connection"},
    {"model.ub_tp_comm_overlap", kFlag, "--tp-comm-overlap"},
    {"model.cpu_offloading", kFlag, "--cpu-offloading-num-layers"},
    {"model.optim.lr", kValue, "--lr"},
    {"model.optim.weight_decay", kValue, "--weight-decay"},
    {"model.optim.eps", kValue, "--adam-eps"},
    {"model.optim.overlap_grad_sync", kFlag, "--overlap-grad-reduce"},
    {"model.optim.overlap_param_sync", kFlag, "--overlap-param-gather"},
    {"model.optim.sched.min_lr", kValue, "--min-lr"},
    {"model.optim.sched.warmup_steps", kValue, "--lr-warmup-iters"},
    {"model.data.data_prefix", kValue, "--data-path"},
    {"trainer.max_steps", kValue, "--train-iters"},
    {"trainer.gradient_clip_val", kValue, "--clip-grad"},
};

}  // namespace

absl::Span<const NemoKey> NemoKeys() { return kKeys; }

std::string WithNemoKeys(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> replaced = {{"--use-distributed-optimizer", "model.optim.name"},
                                                               {"--normalization", "model.normalization"},
                                                               {"--swiglu", "model.activation swiglu"},
                                                               {"--fp16", "trainer.precision 16"},
                                                               {"--attention-backend", "model.use_flash_attention"},
                                                               {"--optimizer", "model.optim.name"},
                                                               {"--lr-decay-style", "model.optim.sched.name"},
                                                               {"Megatron-LM", "NeMo"}};
  for (const NemoKey& key : kKeys) replaced.emplace_back(key.flag, key.path);
  return absl::StrReplaceAll(text, replaced);
}

}  // namespace lynx::cli

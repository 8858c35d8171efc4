// Describes the fields of a job specification and of a layout once: their names and their order. The rank's configuration
// (worker/contract/rank_config.cc, JSON) and the protocol (proto/convert.cc) are read and written with these descriptions. A
// new field needs a member in job_spec.h, a line here, and a field of the same name in proto/lynx/v1/plan.proto.
//
// `Describe(fields, spec)` calls one function of `fields` for each field:
//   Field(name, member)                     a number, bool, text, Bytes or Nanos, or a list of one of these
//   Named(name, member)                     an enum of job_spec.h
//   NamedList(name, member)                 a list of such enums
//   Object(name, member)                    a struct that has a description of its own
//   Objects(name, member)                   a list of such structs
// and, where the protocol treats a value in a special way:
//   FieldOrDefault(name, member)            0 or "" in a message is the member's default
//   NamedOrDefault(name, member)            the value kAuto of the enum in a message is the member's default
//   OptionalField(name, member, standard)   a message lacks the field if the member is `standard`. So messages from before the
//                                           field was added, and their digests, stay the same
//   OptionalObject(name, member)            the same for a struct, whose standard value is T()
//   Chosen(name, chosen)                    a reader returns whether this member of a oneof is in the message; a writer returns
//                                           `chosen`
//   kForRanks                               true if the text is for ranks; then fields that only the server reads are left out
#ifndef LYNX_PLANNER_PROBLEM_JOB_SPEC_FIELDS_H_
#define LYNX_PLANNER_PROBLEM_JOB_SPEC_FIELDS_H_

#include "planner/problem/field.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"

namespace lynx {

template <class Fields>
void Describe(Fields& fields, RotarySpec& rotary) {
  fields.Field(LYNX_FIELD(theta), rotary.theta);
  fields.Field(LYNX_FIELD(dims), rotary.dims);
  fields.Named(LYNX_FIELD(scaling), rotary.scaling);
  fields.Field(LYNX_FIELD(factor), rotary.factor);
  fields.Field(LYNX_FIELD(original_seq), rotary.original_seq);
  fields.Field(LYNX_FIELD(low_freq_factor), rotary.low_freq_factor);
  fields.Field(LYNX_FIELD(high_freq_factor), rotary.high_freq_factor);
  fields.Field(LYNX_FIELD(beta_fast), rotary.beta_fast);
  fields.Field(LYNX_FIELD(beta_slow), rotary.beta_slow);
  fields.Field(LYNX_FIELD(attention_factor), rotary.attention_factor);
  fields.Field(LYNX_FIELD(mscale_all_dim), rotary.mscale_all_dim);
}

template <class Fields>
void Describe(Fields& fields, MoeSpec& moe) {
  fields.Field(LYNX_FIELD(experts), moe.experts);
  fields.Field(LYNX_FIELD(top_k), moe.top_k);
  fields.Field(LYNX_FIELD(ffn), moe.ffn);
  fields.Field(LYNX_FIELD(normalized), moe.normalized);
  fields.Field(LYNX_FIELD(capacity), moe.capacity);
  fields.Field(LYNX_FIELD(skew), moe.skew);
  fields.Field(LYNX_FIELD(aux_loss), moe.aux_loss);
  fields.Field(LYNX_FIELD(z_loss), moe.z_loss);
  fields.Field(LYNX_FIELD(shared_ffn), moe.shared_ffn);
  fields.Field(LYNX_FIELD(dense_layers), moe.dense_layers);
  fields.Field(LYNX_FIELD(dropless), moe.dropless);
  fields.Field(LYNX_FIELD(shared_gate), moe.shared_gate);
  fields.Named(LYNX_FIELD(scores), moe.scores);
  fields.OptionalField(LYNX_FIELD(weight_scale), moe.weight_scale, MoeSpec().weight_scale);
  fields.Field(LYNX_FIELD(router_bias), moe.router_bias);
  fields.Field(LYNX_FIELD(bias_rate), moe.bias_rate);
}

template <class Fields>
void Describe(Fields& fields, LatentSpec& latent) {
  fields.Field(LYNX_FIELD(query_rank), latent.query_rank);
  fields.Field(LYNX_FIELD(kv_rank), latent.kv_rank);
  fields.Field(LYNX_FIELD(value_dim), latent.value_dim);
}

template <class Fields>
void Describe(Fields& fields, ModelSpec& model) {
  fields.Field(LYNX_FIELD(layers), model.layers);
  fields.Field(LYNX_FIELD(hidden), model.hidden);
  fields.Field(LYNX_FIELD(heads), model.heads);
  fields.Field(LYNX_FIELD(ffn), model.ffn);
  fields.Field(LYNX_FIELD(seq), model.seq);
  fields.Field(LYNX_FIELD(vocab), model.vocab);
  fields.Field(LYNX_FIELD(dropout), model.dropout);
  fields.Named(LYNX_FIELD(family), model.family);
  fields.Field(LYNX_FIELD(kv_heads), model.kv_heads);
  fields.Named(LYNX_FIELD(attention), model.attention);
  fields.Named(LYNX_FIELD(dtype), model.dtype);
  fields.Named(LYNX_FIELD(dropout_masks), model.dropout_masks);
  fields.Field(LYNX_FIELD(tied_embeddings), model.tied_embeddings);
  fields.Field(LYNX_FIELD(head_dim), model.head_dim);
  fields.Field(LYNX_FIELD(qkv_bias), model.qkv_bias);
  fields.Field(LYNX_FIELD(qk_norm), model.qk_norm);
  fields.Field(LYNX_FIELD(qk_norm_whole), model.qk_norm_whole);
  fields.OptionalField(LYNX_FIELD(norm_epsilon), model.norm_epsilon, ModelSpec().norm_epsilon);
  fields.OptionalObject(LYNX_FIELD(rotary), model.rotary);
  fields.Field(LYNX_FIELD(window), model.window);
  fields.Field(LYNX_FIELD(plan_only), model.plan_only);
  fields.OptionalObject(LYNX_FIELD(moe), model.moe);
  fields.OptionalObject(LYNX_FIELD(latent), model.latent);
  if constexpr (!Fields::kForRanks) {  // ranks train without narrow products, and sum gradients in 32 bits
    fields.Named(LYNX_FIELD(matmul_type), model.matmul_type);
    fields.Named(LYNX_FIELD(gradient_dtype), model.gradient_dtype);
  }
}

template <class Fields>
void Describe(Fields& fields, DataSpec& data) {
  fields.Named(LYNX_FIELD(kind), data.kind);
  fields.Field(LYNX_FIELD(path), data.path);
  fields.Field(LYNX_FIELD(validation_path), data.validation_path);
}

template <class Fields>
void Describe(Fields& fields, OptimizerSpec& optimizer) {
  fields.Field(LYNX_FIELD(lr), optimizer.lr);
  fields.Field(LYNX_FIELD(beta1), optimizer.beta1);
  fields.Field(LYNX_FIELD(beta2), optimizer.beta2);
  fields.Field(LYNX_FIELD(eps), optimizer.eps);
  fields.Field(LYNX_FIELD(weight_decay), optimizer.weight_decay);
  fields.Field(LYNX_FIELD(clip_norm), optimizer.clip_norm);
}

template <class Fields>
void Describe(Fields& fields, TrainSpec& train) {
  fields.Field(LYNX_FIELD(steps), train.steps);
  fields.Field(LYNX_FIELD(global_batch), train.global_batch);
  fields.Field(LYNX_FIELD(micro_batch), train.micro_batch);
  fields.Object(LYNX_FIELD(optimizer), train.optimizer);
  fields.Named(LYNX_FIELD(schedule), train.schedule);
  fields.Field(LYNX_FIELD(warmup_steps), train.warmup_steps);
  fields.Field(LYNX_FIELD(min_lr), train.min_lr);
  fields.Field(LYNX_FIELD(seed), train.seed);
  fields.Named(LYNX_FIELD(on_non_finite), train.on_non_finite);
  fields.Field(LYNX_FIELD(eval_every), train.eval_every);
  fields.FieldOrDefault(LYNX_FIELD(eval_batches), train.eval_batches);
}

template <class Fields>
void Describe(Fields& fields, ResourceSpec& resources) {
  fields.Field(LYNX_FIELD(min_ranks), resources.min_ranks);
  fields.Field(LYNX_FIELD(max_ranks), resources.max_ranks);
  fields.Field(LYNX_FIELD(activation_memory_per_rank_bytes), resources.activation_memory_per_rank);
  fields.Named(LYNX_FIELD(device), resources.device);
}

template <class Fields>
void Describe(Fields& fields, ParallelSpec& parallel) {
  fields.Field(LYNX_FIELD(tp), parallel.tp);
  fields.Field(LYNX_FIELD(pp), parallel.pp);
  fields.Field(LYNX_FIELD(dp), parallel.dp);
  fields.Field(LYNX_FIELD(cp), parallel.cp);
  fields.Field(LYNX_FIELD(ep), parallel.ep);
  fields.Field(LYNX_FIELD(virtual_stages), parallel.virtual_stages);
  fields.Named(LYNX_FIELD(sequence_parallel), parallel.sequence_parallel);
  fields.Named(LYNX_FIELD(schedule), parallel.schedule);
  fields.Field(LYNX_FIELD(schedule_text), parallel.schedule_text);
  fields.Named(LYNX_FIELD(zero), parallel.zero);
  fields.Named(LYNX_FIELD(weave), parallel.weave);
  fields.Named(LYNX_FIELD(rank_order), parallel.rank_order);
  fields.Named(LYNX_FIELD(partition), parallel.partition);
  if constexpr (!Fields::kForRanks) {
    fields.Field(LYNX_FIELD(stage_layers), parallel.stage_layers);
    fields.Field(LYNX_FIELD(zero_group), parallel.zero_group);
  }
}

template <class Fields>
void Describe(Fields& fields, CheckpointSpec& checkpoint) {
  fields.Field(LYNX_FIELD(directory), checkpoint.directory);
  fields.Field(LYNX_FIELD(every_steps), checkpoint.every_steps);
  fields.Field(LYNX_FIELD(keep), checkpoint.keep);
  fields.Field(LYNX_FIELD(from), checkpoint.from);
  fields.Field(LYNX_FIELD(weights_only), checkpoint.weights_only);
  fields.Field(LYNX_FIELD(copy_every_steps), checkpoint.copy_every_steps);
}

template <class Fields>
void Describe(Fields& fields, RecomputeOptions& options) {
  fields.Field(LYNX_FIELD(layers), options.layers);
  fields.Field(LYNX_FIELD(offload_permille), options.offload_permille);
  fields.NamedList(LYNX_FIELD(forbidden), options.forbidden);
  fields.Field(LYNX_FIELD(forbids_offload), options.forbids_offload);
  fields.NamedList(LYNX_FIELD(modules), options.modules);
}

template <class Fields>
void Describe(Fields& fields, SchedulingSpec& scheduling) {
  fields.FieldOrDefault(LYNX_FIELD(queue), scheduling.queue);
  fields.Field(LYNX_FIELD(priority), scheduling.priority);
  fields.Field(LYNX_FIELD(hold), scheduling.hold);
  fields.Field(LYNX_FIELD(after), scheduling.after);
  fields.Field(LYNX_FIELD(time_limit_ns), scheduling.time_limit);
  bool not_preemptible = !scheduling.preemptible;
  fields.Field(LYNX_FIELD(not_preemptible), not_preemptible);
  scheduling.preemptible = !not_preemptible;
}

template <class Fields>
void Describe(Fields& fields, FailureRule& rule) {
  if (fields.Chosen(LYNX_FIELD(exit_code), rule.log.empty())) fields.Field(LYNX_FIELD(exit_code), rule.exit_code);
  if (fields.Chosen(LYNX_FIELD(log), !rule.log.empty())) fields.Field(LYNX_FIELD(log), rule.log);
  fields.Named(LYNX_FIELD(action), rule.action);
}

template <class Fields>
void Describe(Fields& fields, JobSpec& spec) {
  fields.Field(LYNX_FIELD(name), spec.name);
  fields.Object(LYNX_FIELD(model), spec.model);
  fields.Object(LYNX_FIELD(data), spec.data);
  fields.Object(LYNX_FIELD(train), spec.train);
  fields.Object(LYNX_FIELD(resources), spec.resources);
  fields.Object(LYNX_FIELD(parallel), spec.parallel);
  fields.Named(LYNX_FIELD(recompute), spec.recompute);
  if constexpr (!Fields::kForRanks) fields.Object(LYNX_FIELD(recompute_options), spec.recompute_options);
  fields.Object(LYNX_FIELD(checkpoint), spec.checkpoint);
  fields.Field(LYNX_FIELD(max_restarts), spec.max_restarts);
  if constexpr (!Fields::kForRanks) {
    fields.OptionalObject(LYNX_FIELD(scheduling), spec.scheduling);
    fields.Objects(LYNX_FIELD(on_failure), spec.on_failure);
    fields.Named(LYNX_FIELD(node_check), spec.node_check);
  }
}

// The slots of a custom schedule are not described here. They are a text in a separate field
// (planner/problem/layout_schedule.h).
template <class Fields>
void Describe(Fields& fields, ParallelLayout& layout) {
  fields.Field(LYNX_FIELD(tp), layout.tp);
  fields.Field(LYNX_FIELD(pp), layout.pp);
  fields.Field(LYNX_FIELD(dp), layout.dp);
  fields.FieldOrDefault(LYNX_FIELD(cp), layout.cp);
  fields.OptionalField(LYNX_FIELD(ep), layout.ep, ParallelLayout().ep);
  fields.FieldOrDefault(LYNX_FIELD(virtual_stages), layout.virtual_stages);
  fields.Field(LYNX_FIELD(sequence_parallel), layout.sequence_parallel);
  fields.NamedOrDefault(LYNX_FIELD(schedule), layout.schedule);
  fields.NamedOrDefault(LYNX_FIELD(zero), layout.zero);
  fields.Named(LYNX_FIELD(weave), layout.weave);
  fields.NamedOrDefault(LYNX_FIELD(rank_order), layout.rank_order);
  if constexpr (!Fields::kForRanks) fields.Field(LYNX_FIELD(zero_group), layout.zero_group);  // ranks never have one
}

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_JOB_SPEC_FIELDS_H_

"""`lynxctl plan --set model.config=F` for the config files of families gives a plan, or one sentence that says why not.
`lynxctl models --families` prints the table of families. The files have the fields of published files, but small sizes."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build" / "bin"))

GPT = {"n_layer": 4, "n_embd": 256, "n_head": 8, "n_positions": 256, "vocab_size": 1000, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
NEW = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "intermediate_size": 512, "max_position_embeddings": 512,
       "vocab_size": 1000, "torch_dtype": "bfloat16"}
LLAMA = {**NEW, "num_key_value_heads": 4, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 500000.0}
LATENT = {**LLAMA, "num_key_value_heads": 8, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
CONFIGS = {
    "gpt2": {**GPT, "activation_function": "gelu_new"},
    "gpt_bigcode": {**GPT, "activation_function": "gelu_pytorch_tanh", "multi_query": True},
    "llama": {**LLAMA, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                        "original_max_position_embeddings": 64}},
    "mistral": {**LLAMA, "sliding_window": 128, "head_dim": 48},
    "qwen2": {**LLAMA, "use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 2, "tie_word_embeddings": True},
    "qwen3": {**LLAMA, "head_dim": 64, "attention_bias": False},
    "phi3": {**LLAMA, "sliding_window": 511, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 512},
    "gemma": {**LLAMA, "hidden_act": "gelu", "head_dim": 64},
    "gemma2": {**LLAMA, "hidden_activation": "gelu_pytorch_tanh", "head_dim": 64, "sliding_window": 128, "attn_logit_softcapping": 50.0},
    "gemma3_text": {**LLAMA, "hidden_activation": "gelu_pytorch_tanh", "head_dim": 64, "sliding_window": 128, "rope_local_base_freq": 1e4},
    "phi": {**NEW, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5},
    "gpt_neox": {**NEW, "hidden_act": "gelu", "rotary_pct": 0.25, "use_parallel_residual": True},
    "gptj": {**GPT, "rotary_dim": 16, "activation_function": "gelu_new"},
    "codegen": {**GPT, "rotary_dim": 16, "activation_function": "gelu_new"},
    "gpt_neo": {"num_layers": 4, "hidden_size": 256, "num_heads": 8, "max_position_embeddings": 256, "vocab_size": 1000,
                "activation_function": "gelu_new", "attention_types": [[["global", "local"], 2]]},
    "starcoder2": {**NEW, "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5},
    "falcon": {**NEW, "multi_query": True, "parallel_attn": True},
    "opt": {**NEW, "ffn_dim": 512, "activation_function": "relu"},
    "bloom": {"n_layer": 4, "hidden_size": 256, "n_head": 8, "seq_length": 256, "vocab_size": 1000},
    "mpt": {"n_layers": 4, "d_model": 256, "n_heads": 8, "max_seq_len": 256, "vocab_size": 1000},
    "olmo": {**LLAMA}, "olmo2": {**LLAMA}, "granite": {**LLAMA, "embedding_multiplier": 12.0}, "smollm3": {**LLAMA, "no_rope_layers": [1, 1, 1, 0]},
    "mixtral": {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen3_moe": {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "olmoe": {**LLAMA, "num_key_value_heads": LLAMA["num_attention_heads"], "num_experts": 8, "num_experts_per_tok": 2}, "flex_olmo": {**LLAMA, "num_experts": 7, "num_experts_per_tok": 5},
    "gpt_oss": {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 4, "head_dim": 32, "attention_bias": True},
    "granitemoe": {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "phimoe": {**LLAMA, "num_local_experts": 16, "num_experts_per_tok": 2}, "minimax_m2": {**LLAMA, "num_local_experts": 8, "head_dim": 32},
    "dbrx": {"d_model": 256, "n_heads": 8, "n_layers": 4, "max_seq_len": 256, "vocab_size": 1000, "attn_config": {"kv_n_heads": 2},
             "ffn_config": {"ffn_hidden_size": 512, "moe_num_experts": 8, "moe_top_k": 2}},
    "deepseek_v2": {**LATENT, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "q_lora_rank": None,
                    "first_k_dense_replace": 1, "topk_method": "greedy", "norm_topk_prob": False},
    "deepseek_v3": {**LATENT, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "q_lora_rank": 96,
                    "first_k_dense_replace": 1, "scoring_func": "sigmoid", "moe_layer_freq": 1, "n_group": 1, "topk_group": 1},
    "kimi_k2": {**LATENT, "n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "q_lora_rank": 96,
                "first_k_dense_replace": 1, "n_group": 1},
    "qwen2_moe": {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 256},
    "glm4_moe": {**LLAMA, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "head_dim": 64,
                 "first_k_dense_replace": 1, "attention_bias": True, "use_qk_norm": True},
    "granitemoeshared": {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 256},
    "ernie4_5_moe": {**LLAMA, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 128, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
                     "moe_layer_end_index": -1, "moe_layer_interval": 1},
    "bert": {**NEW, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "type_vocab_size": 2},
    "roberta": {**NEW, "max_position_embeddings": 514}, "xlm-roberta": {**NEW, "max_position_embeddings": 514},
    "camembert": {**NEW, "max_position_embeddings": 514, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "stablelm": {**LLAMA, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25}, "cohere": {**LLAMA, "logit_scale": 0.0625},
}


class FamiliesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.job = self.folder / "job.yaml"
        self.job.write_text("apiVersion: lynx/v1\nkind: TrainingJob\nname: job\nmodel: {seq: 256}\ndata: {kind: megatron, path: corpus}\n"
                            "train: {steps: 10, globalBatch: 8}\nresources: {ranks: 2}\n")
        shown = self.ctl("models", "--families", "-o", "json")
        self.families = {row["modelType"]: row for row in json.loads(shown.stdout)}

    def ctl(self, *arguments, code=0):
        result = subprocess.run([str(BIN / "lynxctl"), *map(str, arguments)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, code, result)
        return result

    def config(self, model_type, fields):
        path = self.folder / f"{model_type}.json"
        path.write_text(json.dumps({"model_type": model_type, **fields}))
        return path

    def plan(self, model_type, fields, *options, code=0):
        return self.ctl("plan", "-f", self.job, "--set", f"model.config={self.config(model_type, fields)}", *options, code=code)

    def test_every_family_of_the_table_is_planned(self):
        self.assertEqual(sorted(CONFIGS), sorted(self.families))
        for model_type, fields in CONFIGS.items():
            with self.subTest(model_type):
                lacking = self.families[model_type]["lacking"]
                # A window that is shorter than the job's sequences comes from the file, not from the family.
                windowed = model_type == "mistral"
                shown = self.plan(model_type, fields).stdout
                self.assertIn("predicted: step", shown)
                self.assertEqual("note: planned as the nearest layers" in shown, bool(lacking), shown)
                self.assertEqual("attention within a window of 128 positions" in shown, windowed, shown)
                for name in lacking:
                    self.assertIn(f"{name} (", shown)

    def test_a_plan_says_which_parts_are_left_out_of_training(self):
        fields = {**CONFIGS["glm4_moe"], "num_nextn_predict_layers": 1}
        shown = self.plan("glm4_moe", fields).stdout
        self.assertIn("note: planned without parts of the model: multi-token-prediction (layers after the last one", shown)
        self.assertNotIn("nearest layers", shown)
        self.ctl("submit", "-f", self.job, "--dry-run", "--set", "model.moe.capacity=4", "--set", "model.seq=128",
                 "--set", f"model.config={self.config('glm4_moe', fields)}")

    def test_what_is_not_trained_is_refused_by_the_name_of_the_feature(self):
        for model_type, fields in CONFIGS.items():
            with self.subTest(model_type):
                trained = self.families[model_type]["trained"]
                self.assertEqual(trained, self.families[model_type]["imported"])
                arguments = ["submit", "-f", self.job, "--dry-run", "--set", f"model.config={self.config(model_type, fields)}",
                             "--set", "model.seq=128"]
                if trained and "num_experts_per_tok" in fields:
                    self.assertIn("model.moe.capacity 0 (no limit) can be planned", self.ctl(*arguments, code=5).stderr)
                    arguments += ["--set", "model.moe.capacity=1.5"]
                result = self.ctl(*arguments, code=0 if trained else 5)
                for name in self.families[model_type]["lacking"]:
                    self.assertIn(f"{name} (", result.stderr)

    def test_choices_among_groups_of_experts_are_not_trained(self):
        for model_type, changes in (("deepseek_v3", {"n_group": 4}), ("deepseek_v3", {"n_group": None}), ("kimi_k2", {"n_group": 2}),
                                    ("deepseek_v2", {"topk_method": "group_limited_greedy"})):
            fields = {name: value for name, value in {**CONFIGS[model_type], **changes}.items() if value is not None or name == "q_lora_rank"}
            arguments = ["submit", "-f", self.job, "--dry-run", "--set", f"model.config={self.config(model_type, fields)}",
                         "--set", "model.seq=128", "--set", "model.moe.capacity=1.5"]
            self.assertIn("other-routing (", self.ctl(*arguments, code=5).stderr)

    def test_a_window_shorter_than_the_sequences_is_not_trained(self):
        path = self.config("mistral", CONFIGS["mistral"])
        result = self.ctl("submit", "-f", self.job, "--dry-run", "--set", f"model.config={path}", code=5)
        self.assertIn("model.seq 256 is longer than the attention window, model.window 128", result.stderr)

    def test_what_cannot_be_planned_is_one_sentence(self):
        for model_type, fields, sentence in (
                ("llama", {**LLAMA, "num_local_experts": 8}, "mixtures of experts of this family cannot be planned by this version"),
                ("qwen3_moe", {**CONFIGS["qwen3_moe"], "decoder_sparse_step": 2}, "(decoder_sparse_step is 2) cannot be planned"),
                ("llama4_text", {**LLAMA}, "an expert that every token passes cannot be planned"),
                ("llama", {**LLAMA, "kv_lora_rank": 512}, "latent attention of this family cannot be planned"),
                ("deepseek_v3", {**CONFIGS["deepseek_v3"], "moe_layer_freq": 2}, "(moe_layer_freq is 2) cannot be planned"),
                ("t5", {**NEW}, "an encoder beside the decoder cannot be planned"),
                ("mamba", {"num_hidden_layers": 4}, "state-space layers cannot be planned"),
                ("frobnicator", {"num_hidden_layers": 4, "hidden_size": 256}, "num_attention_heads, or n_head")):
            with self.subTest(model_type):
                error = self.plan(model_type, fields, code=2).stderr
                self.assertIn(sentence, error)
                self.assertEqual(len(error.strip().splitlines()), 1, error)

    def test_a_family_that_is_not_in_the_table_is_planned_by_its_shape(self):
        self.assertIn("unknown-family (a model_type that is not in the table of families)", self.plan("frobnicator", LLAMA).stdout)

    def test_what_the_file_says_is_what_is_planned(self):
        shown = self.ctl("submit", "-f", self.job, "--dry-run", "--set", f"model.config={self.config('llama', CONFIGS['llama'])}", "-o", "json")
        model = json.loads(shown.stdout)["spec"]["model"] if "spec" in json.loads(shown.stdout) else json.loads(shown.stdout)["model"]
        self.assertEqual(model["normEpsilon"], 1e-6)
        self.assertEqual(model["rotary"]["theta"], 500000)
        self.assertEqual(model["rotary"]["scaling"], "ROPE_SCALING_LLAMA3")
        self.assertEqual(model["rotary"]["originalSeq"], 64)


if __name__ == "__main__":
    unittest.main()

# %% [markdown]
# # How much memory does my model need?
# From a Hugging Face config.json: the bytes of each rank by kind, why, and whether they fit.

# %%
import json
import pathlib

import lynx

config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
          "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000,
          "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False,
          "torch_dtype": "bfloat16"}
pathlib.Path("config.json").write_text(json.dumps(config))

# %%
print(lynx.memory.estimate("config.json", "a100-80gb-nvlink", seq=4096, batch=64))

# %% [markdown]
# On smaller devices the same job may need a change; the estimate says which is the smallest.

# %%
print(lynx.memory.estimate("config.json", "l4", seq=4096, batch=64))

# %% [markdown]
# What would Megatron-LM need?

# %%
print(lynx.memory.estimate("config.json", "a100-80gb-nvlink", seq=4096, batch=64, framework="megatron"))

# %% [markdown]
# # Plan many cases, and compare them in a table
# How do longer sequences and more nodes change the step?

# %%
import lynx

job = lynx.Job(model="llama-7b", batch=64, **{"model.dtype": "bfloat16", "model.attention": "fused"})
table = lynx.sweep(job, "h100", {"seq": [4096, 8192, 16384], "nodes": [1, 2]})
print(table)

# %% [markdown]
# The table is a list of records.

# %%
best = max((row for row in table if row.fits), key=lambda row: row.tokens_per_second)
print(f"most tokens: {best.tokens_per_second:,} a second with sequences of {best.seq} on {best.nodes} nodes")

# %% [markdown]
# With pandas it becomes a frame.

# %%
try:
    frame = table.to_pandas()
    print(frame.pivot(index="seq", columns="nodes", values="tokens_per_second"))
except ImportError as error:
    print(error)

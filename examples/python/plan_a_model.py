# %% [markdown]
# # Plan a model on a machine
# What does a step of a 22B model take on two nodes of eight H100, and what would make it faster?

# %%
import lynx

job = lynx.Job(model="gpt-22b", batch=64, **{"model.dtype": "bfloat16", "model.attention": "fused"})
machine = lynx.Cluster("h100", nodes=2)
plan = lynx.plan(job, machine)
print(plan)

# %% [markdown]
# A notebook shows the plan's page, with the timeline of the step, if a cell ends with the plan.

# %%
plan

# %% [markdown]
# The same figures as values.

# %%
print(f"{plan.layout}: {plan.step_seconds:.3f} s a step, {plan.tokens_per_second:,} tokens/s")
print(plan.memory)

# %% [markdown]
# Other recomputation policies in the same layout, and why this plan is as it is.

# %%
print(lynx.compare(job, machine))
print(lynx.explain(job, machine))

# %% [markdown]
# For Megatron-LM.

# %%
exported = plan.export("megatron")
print(exported)
print(exported.missing)

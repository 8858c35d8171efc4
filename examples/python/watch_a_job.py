# %% [markdown]
# # Train on a cluster, and watch
# This needs a cluster: `lynxctl local up` starts one on this machine.

# %%
import pathlib

import lynx

client = lynx.Client()
print(client.nodes().column("name"))

# %%
pathlib.Path("corpus.txt").write_text("".join(f"Line {i}: {i * 7 % 13} lazy dogs.\n" for i in range(2000)))
model = {"layers": 2, "hidden": 32, "heads": 4, "seq": 32}
job = client.submit(lynx.Job(name="from-python", model=model, data={"path": "corpus.txt"}, steps=20, batch=4, ranks=2))
print(job)

# %%
for update in client.watch(job):
    for event in update.events:
        print(event.kind, event.reason)

# %% [markdown]
# How the steps went, as a table; and what the ranks wrote.

# %%
job = client.get(job)
print(job, job.progress.loss)
print(client.metrics(job))
for line in client.logs(job, lines=5):
    print(line.rank, line.text)

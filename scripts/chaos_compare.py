"""Compares jobs that had faults with jobs that had none, for chaos.py: the loss of each step, and the last weights."""

import collections
import csv
import hashlib
import json

SAME_LOSS = 2e-5  # relative limit; two neighbouring steps usually differ by more: see neighbours_differ
SAME_LAYOUT = ("fixed", "single")


def steps_of(cluster, name):
    """Returns [(step, loss, gradient norm)] of a job from its log. Loss and norm are the exact text of the log."""
    rows = []
    for path in (cluster.home / "checkpoints" / name).glob("metrics-*/metrics.csv"):
        with open(path, newline="") as lines:
            rows += [(int(row["step"]), row["loss"], row["gradient_norm"]) for row in csv.DictReader(lines)]
    return rows


def weights_of(cluster, name, steps):
    """Returns a digest of all weights and moments in the checkpoint of step `steps`; None: there is no such checkpoint."""
    digest = hashlib.sha256()
    shards = sorted((cluster.home / "checkpoints" / name / f"step-{steps:08}").glob("*.safetensors"))
    for shard in shards:
        content = shard.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        tensors = json.loads(content[8:header])
        tensors.pop("__metadata__")  # the entry says to which run the tensors belong
        digest.update(json.dumps(tensors, sort_keys=True).encode() + content[header:])
    return digest.hexdigest() if shards else None


def same_loss(a, b):
    return abs(float(a) - float(b)) <= SAME_LOSS * float(a)


def neighbours_differ(cluster, name):
    """Returns the share of steps whose loss differs from that of the next step."""
    losses = [loss for _, loss, _ in steps_of(cluster, name)]
    return sum(not same_loss(a, b) for a, b in zip(losses, losses[1:])) / max(len(losses) - 1, 1)


def wrong_samples(jobs, name, kind, reference, whole):
    """Returns what differs from the undisturbed job `reference`. `whole`: no step may be missing in the log."""
    cluster = jobs.cluster
    rows, expected = steps_of(cluster, name), {step: rest for step, *rest in steps_of(cluster, reference)}
    steps = [step for step, *_ in rows]
    if steps != sorted(set(steps)):
        return [f"{name}: steps are not once each and in order: {[a for a, b in zip(steps, steps[1:]) if b <= a][:5]}"]
    if whole and steps != list(range(1, jobs.steps + 1)):
        return [f"{name}: the log has {len(steps)} of {jobs.steps} steps"]
    if kind in SAME_LAYOUT:
        bad = [step for step, *rest in rows if rest != expected[step]]
        if weights_of(cluster, name, jobs.steps) != weights_of(cluster, reference, jobs.steps):
            bad.append("the final weights")
    else:
        bad = [step for step, loss, _ in rows if not same_loss(loss, expected[step][0])]
    return [f"{name}: not as in the undisturbed run: {bad[:5]} of {len(bad)}"] if bad else []


def check(chaos, references):
    """Returns everything that is wrong, one sentence each. `references`: kind -> (name, seconds) of undisturbed jobs."""
    jobs, found = chaos.jobs, list(chaos.watch.violations)
    names = collections.Counter(job["spec"]["name"] for job in jobs.last.values())
    found += [f"{name} is there {count} times" for name, count in names.items() if count > 1]
    if neighbours_differ(jobs.cluster, references["elastic"][0]) < 0.95:
        found.append("the losses of the elastic job do not tell its samples apart: this check checks nothing")
    whole = not any(kind.startswith("full") for kind in chaos.counts)
    for job, (kind, name) in jobs.acknowledged.items():
        if job not in jobs.last:
            found.append(f"job {job} ({name}) is lost")
        elif jobs.last[job]["state"] != "JOB_STATE_SUCCEEDED":
            found.append(f"job {job} ({name}) is {jobs.last[job]['state']}: {jobs.last[job].get('reason', '')}")
        else:
            found += wrong_samples(jobs, name, kind, references[kind][0], whole)
    return found

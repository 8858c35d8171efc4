#!/usr/bin/env python3
"""The second half of `scripts/demo.sh --chaos`: a job trains on two nodes, one node dies, the job goes on without it,
the node comes back, and the job uses it again. At the end it prints the story in five lines. Needs a running local
cluster of two nodes with one device each ($LYNX_HOME, $LYNX_BIN).

  demo_chaos.py JOB_FILE [lynxctl submit's --set KEY=VALUE ...]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

BIN = pathlib.Path(os.environ["LYNX_BIN"])
HOME = pathlib.Path(os.environ["LYNX_HOME"]) / "local"
STEPS_BEFORE = 20  # steps to train before the node dies, and again in the smaller layout before the node returns
PATIENCE = 300     # seconds in which each expected thing must happen
ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


def fail(message):
    sys.exit(f"error: {message}")


def environment():
    """The environment in which lynxctl calls this cluster, whatever context is in use."""
    env = {name: value for name, value in os.environ.items() if name not in ("LYNX_CONTEXT", "LYNX_CA_FILE", "LYNX_TOKEN_FILE")}
    try:
        return dict(env, LYNX_SERVER=json.loads((HOME / "cluster.json").read_text())["serverAddress"])
    except (OSError, ValueError, KeyError) as error:
        fail(f"{HOME}/cluster.json does not name the server ({error}); start a cluster with 'lynxctl local up'")


def lynxctl(*arguments):
    result = subprocess.run([str(BIN / "lynxctl"), *map(str, arguments)], capture_output=True, text=True, env=environment(),
                            stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        fail(f"lynxctl {arguments[0]}: {result.stderr.strip()}")
    return result.stdout


class Job:
    def __init__(self, arguments):
        self.id = json.loads(lynxctl("submit", *arguments, "-o", "json"))["id"]

    def page(self):
        return json.loads(lynxctl("get", self.id, "-o", "json", "--events"))

    def wait(self, condition, what):
        """Waits for a page of the job that satisfies the condition, and returns it. A busy machine may be slow,
        so the limit PATIENCE begins again whenever the job has done a step or changed its state."""
        seen = deadline = None
        while True:
            page = self.page()
            if condition(page):
                return page
            if page["state"] in ENDED:
                fail(f"the job ended before {what}: {page.get('reason', '')}")
            now = (page["state"], page["generation"], page["progress"]["stepsDone"])
            if now != seen:
                seen, deadline = now, time.monotonic() + PATIENCE
            elif time.monotonic() > deadline:
                fail(f"{what}: nothing has moved for {PATIENCE} s; see {HOME}/logs")
            time.sleep(0.1)

    def runs(self, generation):
        return self.wait(lambda p: p["state"] == "JOB_STATE_RUNNING" and int(p["generation"]) >= generation,
                         f"generation {generation} trained")

    def steps(self, count):
        return self.wait(lambda p: int(p["progress"]["stepsDone"]) >= count, f"step {count}")


def steps_done(page):
    return int(page["progress"]["stepsDone"])


def step_time(page):
    return f"{float(page['progress'].get('stepNs', 0)) / 1e6:.0f} ms a step"


def kill_node(name):
    """Kills all processes of the node at once, as if its power had failed. The processes of the other node go on."""
    marker = str(HOME / name) + "/"
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if marker in command + "/":
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def newest_checkpoint(page):
    return int(page.get("checkpointStep", 0))


def main():
    job = Job(["-f", *sys.argv[1:]])
    print(f"job {job.id} is submitted; lynxctl watch {job.id} follows it", flush=True)
    page = job.wait(lambda p: steps_done(p) >= STEPS_BEFORE and newest_checkpoint(p) > 0, "the first steps and a checkpoint")
    ranks = len(page["placement"])
    if ranks < 2:
        fail(f"the job got {ranks} rank only: there is nothing to take away")
    victim = page["placement"][-1]["node"]
    story = [f"1. {ranks} ranks trained to step {steps_done(page)}, {step_time(page)}."]
    killed_at = steps_done(page)

    print(f"killing every process of {victim} at step {killed_at}", flush=True)
    kill_node(victim)
    begin = time.monotonic()
    page = job.runs(int(page["generation"]) + 1)
    story.append(f"2. {victim} died; {time.monotonic() - begin:.0f} s later the job had a plan for {len(page['placement'])} rank and "
                 f"trained on from the checkpoint of step {newest_checkpoint(page)}.")
    page = job.steps(max(killed_at, newest_checkpoint(page)) + STEPS_BEFORE)
    story.append(f"3. It came to step {steps_done(page)} without that node, {step_time(page)}.")

    print(f"starting {victim} again at step {steps_done(page)}", flush=True)
    begin = time.monotonic()
    lynxctl("local", "up")
    page = job.runs(int(page["generation"]) + 1)
    story.append(f"4. {victim} was back; {time.monotonic() - begin:.0f} s later the job used it: its ranks had given way after step "
                 f"{newest_checkpoint(page)} to a plan for {len(page['placement'])}, and lost none.")
    page = job.wait(lambda p: p["state"] == "JOB_STATE_SUCCEEDED", "its end")
    story.append(f"5. {steps_done(page)} steps are done, {step_time(page)} at the end, loss {page['progress']['loss']:.3f}; "
                 f"restarts for faults: {page['restarts']}.")
    print("\n" + "\n".join(story) + f"\n\nEvery decision with its reason: lynxctl get {job.id} --events")


if __name__ == "__main__":
    main()

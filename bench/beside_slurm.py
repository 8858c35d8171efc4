#!/usr/bin/env python3
"""Lynx beside Slurm on one machine: how fast submissions are taken, and how soon a trivial job starts when everything is idle.

    bench/beside_slurm.py [--jobs 30] [--seconds 24] [--held 1500]

Both run their real daemons on loopback: munged, slurmctld and two slurmd of two CPUs; lynx-server and two nodes of two devices. They take
turns, job by job. A job has started when its script's first command runs (Slurm), or when its rank has loaded its model and is about
to train (Lynx). Submissions a second: of processes of their own, sbatch and lynxctl, each of which prints its sentence; and of clients
that stay, submit_slurm through Slurm's own library and submit_lynx over one gRPC channel (both from bench/beside). Jobs of the rates are
held in both. Needs root, for Slurm; exits with 77 without them.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import test_slurm  # noqa: E402
from cluster import BIN  # noqa: E402

# Without these settings slurmctld refuses jobs after a while: by default it holds 10,000 jobs, including cancelled ones.
test_slurm.CONFIG += "MaxJobCount=200000\nMinJobAge=2\n"
NOT_HERE = 77


class Beside(test_slurm.SlurmTest):
    def runTest(self):
        pass

    def up(self):
        super().up()
        for node in ("lynx0", "lynx1"):
            common = ["--node", node, "--server", self.env["LYNX_SERVER"]]
            self.start_daemon(f"{node}-agent", str(BIN / "lynx-agent"), *common, "--data-dir", str(self.home / f"{node}-agent"), "--devices", "cpu:2")
            self.start_daemon(f"{node}-worker", str(BIN / "lynx-worker"), *common, "--data-dir", str(self.home / f"{node}-worker"))
        self.await_output([str(BIN / "lynxctl"), "nodes"], "lynx0")
        self.await_output([str(BIN / "lynxctl"), "nodes"], "lynx1")

    def quiet(self, *command):
        result = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}\n{result.stderr}")
        return result.stdout.strip()

    def slurm_start(self, number):
        """Seconds from before sbatch to the first command, and the seconds that sbatch itself takes."""
        mark = self.directory / f"mark-{number}"
        script = self.directory / "trivial.sh"
        script.write_text('#!/bin/sh\ndate +%s.%N > "$1.part" && mv "$1.part" "$1"\n')
        begin = time.time()
        self.quiet("sbatch", "--parsable", "--nodes=1", "--output=/dev/null", str(script), str(mark))
        taken = time.time() - begin
        self.await_on_disk(mark.exists, "the Slurm job started", 60)
        return float(mark.read_text()) - begin, taken

    def lynx_start(self, number):
        path = self.job_file(name=f"trivial-{number}", steps=1, ranks=1, tp="auto", pp="auto")
        begin = time.time()
        job = self.quiet(str(BIN / "lynxctl"), "submit", "-f", str(path))
        taken = time.time() - begin
        page = self.await_job(job.split()[1], lambda p: p["state"] == "JOB_STATE_SUCCEEDED", "it is done")
        return int(page["startedUnixNs"]) / 1e9 - begin, taken

    def rate_of_clients(self, command, count, clients=4):
        """Submissions a second by clients that stay connected while each submits `count` jobs."""
        begin = time.monotonic()
        started = [subprocess.Popen([*map(str, command), str(count)], env=self.env, stdin=subprocess.DEVNULL) for _ in range(clients)]
        self.assertEqual([one.wait(timeout=300) for one in started], [0] * clients)
        return clients * count / (time.monotonic() - begin)

    def forget(self):
        """Removes the jobs of the previous round from both systems."""
        self.quiet("scancel", "--state=PENDING", "--user=root")
        self.quiet(str(BIN / "lynxctl"), "cancel", "--all")

    def rate(self, command, seconds, clients=4):
        """Submissions a second by clients that each start a command when the previous one has ended."""
        end, counts = time.monotonic() + seconds, [0] * clients

        def submit(client):
            while time.monotonic() < end:
                self.quiet(*command)
                counts[client] += 1
        threads = [threading.Thread(target=submit, args=(client,)) for client in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / seconds

    def measure(self, jobs, seconds, held_each):
        self.lynx_start("first")  # makes the nodes measure the op times of this shape, so that the timed jobs do not wait for it
        starts = {"slurm": [], "lynx": []}
        for number in range(jobs):
            starts["slurm"].append(self.slurm_start(number))
            starts["lynx"].append(self.lynx_start(number))
        held = self.directory / "held.yaml"
        held.write_text(self.job_file(name="held", ranks=1, tp="auto", pp="auto").read_text() + "scheduling: {hold: true}\n")
        script = self.directory / "true.sh"
        script.write_text("#!/bin/sh\ntrue\n")
        rates = {"slurm": [], "lynx": []}
        library = {"slurm": [], "lynx": []}
        for _ in range(3):
            self.forget()
            rates["slurm"].append(self.rate(["sbatch", "--hold", "--output=/dev/null", str(script)], seconds / 3))
            rates["lynx"].append(self.rate([str(BIN / "lynxctl"), "submit", "-f", str(held)], seconds / 3))
        if not (BIN / "submit_slurm").exists():
            print("no rates of clients that stay: submit_slurm is not built, which needs libslurm-dev")
            return starts, rates, library
        for _ in range(3):
            self.forget()
            library["slurm"].append(self.rate_of_clients([BIN / "submit_slurm"], held_each))
            library["lynx"].append(self.rate_of_clients([BIN / "submit_lynx", self.env["LYNX_SERVER"], held], held_each))
        return starts, rates, library


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=24, help="of submissions as fast as four clients can")
    parser.add_argument("--held", type=int, default=1500, help="submissions of each client that stays")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or test_slurm.programs_missing():
        print(f"Slurm needs root; not installed: {', '.join(test_slurm.programs_missing()) or 'nothing'}")
        return NOT_HERE
    run = Beside()
    run.setUp()
    try:
        starts, rates, library = run.measure(arguments.jobs, arguments.seconds, arguments.held)
    finally:
        run.doCleanups()
    print(f"\n| median (least to most) of {arguments.jobs} | Slurm | Lynx |\n|---|---:|---:|")
    for index, what in enumerate(["submission to start, ms", "submission itself, ms"]):
        cells = []
        for one in ("slurm", "lynx"):
            values = [1e3 * pair[index] for pair in starts[one]]
            cells.append(f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})")
        print(f"| {what} | {cells[0]} | {cells[1]} |")
    for what, measured in (("by a command each", rates), ("by clients that stay, through the library", library)):
        if measured["slurm"]:
            cells = [f"{statistics.median(measured[one]):.0f} ({min(measured[one]):.0f} to {max(measured[one]):.0f})" for one in ("slurm", "lynx")]
            print(f"| submissions a second, four clients, three times, {what} | {cells[0]} | {cells[1]} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

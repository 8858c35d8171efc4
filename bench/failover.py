#!/usr/bin/env python3
"""Servers on one PostgreSQL fail over again and again while jobs are submitted: what is lost or doubled, and how long it takes.

    bench/failover.py [--failovers 200] [--rate 100] [--servers 3] [--nodes 2] [--kinds kill,stop] [--between 2] [--threads 8]

Each failover: the server that leads is killed (SIGKILL) or stopped (SIGSTOP), in turn; when another one has led for --between seconds, the
lost one is started again or goes on. With the kind promote it is PostgreSQL that fails: the primary is killed, all its processes at once,
and its synchronous standby is promoted at once; then a new standby takes the place of the lost primary. Meanwhile threads submit held jobs with `lynxctl submit`, together --rate a second, each with a key of
its own; what is not acknowledged is repeated under the same key. At the end the keys that were acknowledged are compared with the database.

Printed are, as medians and worst: the time from the loss to the acknowledgement of the first submission that was begun after it, and the
time until all nodes are attached to the new leader. Exits with 1 if a job was lost or is there twice, with 77 without PostgreSQL.
"""

import argparse
import pathlib
import shutil
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import postgres  # noqa: E402
from cluster import JOB  # noqa: E402
from servers import Servers  # noqa: E402

NOT_HERE = 77


class Load:
    """Threads that submit. All share what was acknowledged: key -> id."""

    def __init__(self, servers, path, rate, threads):
        self.servers, self.path = servers, path
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.keys, self.acknowledged, self.times, self.repeated = 0, {}, [], 0
        self.begin, self.every = time.monotonic(), threads / rate
        self.threads = [threading.Thread(target=self.submit, args=(i / rate,), daemon=True) for i in range(threads)]

    def submit(self, offset):
        due = self.begin + offset
        while not self.ended.is_set():
            time.sleep(max(0.0, due - time.monotonic()))
            # A thread that was delayed counts its times from now on. Otherwise it would send all the missed requests at once.
            due = max(due + self.every, time.monotonic())
            with self.lock:
                self.keys += 1
                key = f"key-{self.keys}"
            while not self.ended.is_set():
                begun = time.monotonic()
                result = self.servers.ctl("submit", "-f", self.path, "--set", "scheduling.hold=true", "--idempotency-key", key)
                with self.lock:
                    if result.code == 0:
                        self.acknowledged[key] = result.out.split()[1]
                        self.times.append((begun, time.monotonic()))
                        break
                    self.repeated += 1

    def first_after(self, moment):
        with self.lock:
            done = [end for begun, end in self.times if begun >= moment]
            return min(done) - moment if done else None

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def spread(values):
    return f"median {statistics.median(values):.2f} s, worst {max(values):.2f} s ({len(values)})"


def fail_over(servers, database, load, kind, between):
    """Makes one failover. Returns the seconds until a submission was accepted, and until all nodes were attached."""
    old = servers.leader()
    moment = time.monotonic()
    if kind == "promote":
        moment = database.lose_primary()
    elif kind == "kill":
        old.kill()
    else:
        old.stop()
    submitted = servers.until(lambda: load.first_after(moment), f"a submission after {kind}", pause=0.02)
    servers.await_attached()
    attached = time.monotonic() - moment
    time.sleep(between)
    if kind == "promote":
        database.add_standby()
        # A server that did not find the new primary in time has ended.
        for server in servers.all:
            if not server.runs():
                servers.mend(server)
    else:
        servers.mend(old)
    return submitted, attached


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failovers", type=int, default=200)
    parser.add_argument("--rate", type=float, default=100, help="submissions a second")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--kinds", default="kill,stop", help="kill, stop and promote, those that are given in turn")
    parser.add_argument("--between", type=float, default=2, help="seconds from the end of one failover to the next")
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if set(kinds) - {"kill", "stop", "promote"} or options.rate <= 0 or min(options.failovers, options.nodes, options.threads) < 1 or options.servers < 2:
        parser.error("--kinds takes kill, stop and promote, --servers at least 2, and the other numbers are positive")
    if postgres.binaries() is None:
        print(postgres.MISSING)
        return NOT_HERE
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lynx-failover-"))
    database = postgres.PrimaryAndStandby() if "promote" in kinds else postgres.Postgres()
    servers = None
    try:
        if "promote" not in kinds:
            database.make_database()
        servers = Servers(folder, database, servers=options.servers, nodes=options.nodes)
        servers.start()
        servers.await_servers()
        servers.await_attached()
        corpus = folder / "corpus.txt"
        corpus.write_text("the quick brown fox jumps over the lazy dog\n" * 2000)
        job = folder / "job.yaml"
        job.write_text(JOB.format(name="waits", data=corpus, steps=20, ranks=1, memory="auto", tp=1, pp=1, recompute="auto", dtype="float32",
                                  every=0, extra="", max_restarts=3))
        load = Load(servers, job, options.rate, options.threads)
        for thread in load.threads:
            thread.start()
        begin = time.monotonic()
        times = {kind: [] for kind in kinds}
        for i in range(options.failovers):
            kind = kinds[i % len(kinds)]
            times[kind].append(fail_over(servers, database, load, kind, options.between))
            print(f"failover {i + 1} ({kind}): submission {times[kind][-1][0]:.2f} s, nodes {times[kind][-1][1]:.2f} s", flush=True)
        load.stop()
        took = time.monotonic() - begin
        servers.leader()
        rows = [line.split("|") for line in database.sql("SELECT idempotency_key, id FROM jobs").splitlines()]
        stored = {}
        for key, job_id in rows:
            stored.setdefault(key, []).append(job_id)
        lost = sorted(key for key, job_id in load.acknowledged.items() if job_id not in stored.get(key, []))
        double = sorted(key for key, ids in stored.items() if len(ids) > 1)
        for kind, found in times.items():
            if found:
                print(f"{kind}: to the next submission {spread([one for one, _ in found])}; to all nodes {spread([two for _, two in found])}")
        print(f"{options.failovers} failovers in {took:.0f} s; {len(load.acknowledged)} submissions acknowledged "
              f"({len(load.acknowledged) / took:.1f} a second), {load.repeated} calls repeated; lost {len(lost)}, double {len(double)}")
        if lost or double:
            print(f"lost: {lost[:20]}\ndouble: {double[:20]}\n{servers.logs()}", file=sys.stderr)
        return 1 if lost or double else 0
    finally:
        if servers is not None:
            servers.end()
        database.clean_up()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

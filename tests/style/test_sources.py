"""The architecture as a test: who may include whom, what the planner may not touch, and the size of files."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("common", "planner", "proto", "node", "security", "server", "agent", "worker", "cli", "solver", "report")

# Rooms inside rooms: the worker's daemon speaks gRPC, its engine does not; the planner's exact solver has a time limit
# and a MILP library, the planner neither.
INNER_ROOMS = ("worker/daemon", "planner/opt")
# Room -> rooms it may include.
MAY_INCLUDE = {
    "common": {"common"},
    "planner": {"common", "planner"},
    "planner/opt": {"common", "planner", "planner/opt"},
    "worker": {"common", "planner", "worker"},
    "proto": {"common", "planner", "proto"},
    "report": {"common", "planner", "proto", "report"},
    "node": {"common", "planner", "proto", "node"},
    "security": {"common", "planner", "proto", "node", "security"},
    "worker/daemon": {"common", "planner", "proto", "node", "security", "worker"},
    "server": {"common", "planner", "proto", "node", "security", "report", "server"},
    "agent": {"common", "planner", "proto", "node", "security", "agent"},
    "cli": {"common", "planner", "proto", "node", "security", "report", "cli"},
    "solver": {"common", "planner", "planner/opt", "node", "solver"},
}
# What of the worker another room may see: plain data that crosses a file or a pipe between them, and the files that a
# run leaves.
CONTRACTS = {
    "proto": {"worker/contract/rank_config.h", "worker/contract/rank_report.h"},
    "agent": {"worker/rank/measure/measure.h"},
    "cli": {"worker/checkpoint/hugging_face.h", "worker/checkpoint/offline.h"},
}
# CUDA stays below the interfaces of the backend and of the communicator.
CUDA_FILES = {"worker/collectives/nccl_communicator.cc"}
CUDA = re.compile(r"^(cuda.*|cublas.*|cudnn.*|nccl.*|nvml.*|.*\.cuh)$")
SUFFIXES = (".h", ".cc", ".cuh", ".cu")
PROTOBUF = re.compile(r"(grpcpp|google/protobuf|\.pb\.h|sqlite3)")
IMPURE = re.compile(r"^(thread|mutex|condition_variable|atomic|fstream|iostream|filesystem|random|chrono|ctime|unistd\.h|"
                    r"sys/.*|grpcpp/.*|google/.*|sqlite3\.h|common/clock\.h|common/rng\.h|.*\.pb\.h)$")
# OPT's time limit is the planner's one look at a clock.
IMPURE_ALLOWED = {("planner/opt/stage_opt.cc", "chrono")}
IMPURE_CALLS = re.compile(r"\b(getenv|rand|srand|time|clock_gettime|fopen|printf)\s*\(")


def sources():
    for room in ROOMS:
        yield from (p for p in sorted((ROOT / room).rglob("*")) if p.suffix in SUFFIXES)


def room_of(path):
    """Of a path below the root, as text."""
    return next((room for room in INNER_ROOMS if path.startswith(room + "/")), path.split("/")[0])


def room_of_file(path):
    return room_of(path.relative_to(ROOT).as_posix())


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1)


class SourcesTest(unittest.TestCase):
    def assert_none(self, found):
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_rooms_depend_in_one_direction(self):
        bad = []
        for path in sources():
            room = room_of_file(path)
            for number, name in includes(path):
                target = "proto" if name.startswith("lynx/v1/") else room_of(name)
                known = target in ROOMS or target in INNER_ROOMS
                allowed = target in MAY_INCLUDE[room] or target == room or name in CONTRACTS.get(room, ())
                if known and not allowed:
                    bad.append(f"{path.relative_to(ROOT)}:{number}: {room} includes {name}")
        self.assert_none(bad)

    def test_planner_is_pure(self):
        bad = []
        for path in sources():
            if room_of_file(path) not in ("planner", "planner/opt"):
                continue
            bad += [f"{path.relative_to(ROOT)}:{n}: includes {name}" for n, name in includes(path)
                    if IMPURE.match(name) and (path.relative_to(ROOT).as_posix(), name) not in IMPURE_ALLOWED]
            bad += [f"{path.relative_to(ROOT)}:{n}: calls {m.group(0)}"
                    for n, line in enumerate(path.read_text().splitlines(), 1)
                    if (m := IMPURE_CALLS.search(line.split("//")[0]))]
        self.assert_none(bad)

    def test_no_protobuf_below_the_protocol(self):
        bad = [f"{path.relative_to(ROOT)}:{n}: includes {name}" for path in sources()
               if room_of_file(path) in ("common", "planner", "planner/opt", "worker")
               for n, name in includes(path) if PROTOBUF.search(name)]
        self.assert_none(bad)

    def test_cuda_stays_below_the_interfaces(self):
        bad = [f"{path.relative_to(ROOT)}:{n}: includes {name}" for path in sources()
               if not path.is_relative_to(ROOT / "worker/backend/cuda")
               and path.relative_to(ROOT).as_posix() not in CUDA_FILES
               for n, name in includes(path) if CUDA.match(name)]
        self.assert_none(bad)

    def test_files_stay_readable(self):
        tested = list(sources()) + [p for p in (ROOT / "tests").rglob("*") if p.suffix in (".cc", ".py")]
        self.assert_none([f"{p.relative_to(ROOT)}: {n} lines" for p in tested if (n := len(p.read_text().splitlines())) > 620])

    def test_headers_say_what_they_are(self):
        bad = []
        for path in sources():
            if path.suffix not in (".h", ".cuh"):
                continue
            text = path.read_text()
            guard = "LYNX_" + re.sub(r"[/.]", "_", path.relative_to(ROOT).as_posix()).upper() + "_"
            if not text.startswith("//") or f"#ifndef {guard}" not in text:
                bad.append(f"{path.relative_to(ROOT)}: needs a file comment and the guard {guard}")
        self.assert_none(bad)


if __name__ == "__main__":
    unittest.main()

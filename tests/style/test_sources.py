"""Checks the architecture: who may include whom, what the planner may not use, and the size of files and folders."""

import collections
import graphlib
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("common", "planner", "proto", "node", "security", "server", "agent", "worker", "cli", "solver", "report", "studio", "python")

# A room is a top folder of the sources; an inner room is a folder in a room. Three inner rooms have rules of their own.
# The worker's daemon uses gRPC, but its engine does not. The planner's exact solver has a time limit and a MILP
# library, but the planner has neither. The studio reads the files that people write, too, but knows nothing else of lynxctl.
INNER_ROOMS = ("worker/daemon", "planner/opt", "cli/spec")
# For each room: the rooms whose headers its files may include.
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
    "server": {"common", "planner", "proto", "node", "security", "report", "studio", "server"},
    "agent": {"common", "planner", "proto", "node", "security", "agent"},
    "cli/spec": {"common", "planner", "proto", "cli/spec"},
    "studio": {"common", "planner", "node", "cli/spec", "studio"},
    "cli": {"common", "planner", "proto", "node", "security", "report", "cli/spec", "studio", "cli"},
    "solver": {"common", "planner", "planner/opt", "node", "solver"},
    "python": {"common", "planner", "proto", "node", "report", "cli/spec", "cli", "python"},
}
# The worker's headers that other rooms may include: plain data that crosses a file or a pipe between them, and
# functions on the files that a run leaves.
CONTRACTS = {
    "proto": {"worker/contract/rank_config.h", "worker/contract/rank_config_fields.h", "worker/contract/rank_report.h",
              "worker/contract/rank_report_fields.h"},
    "server": {"worker/contract/rank_report.h"},
    "agent": {"worker/contract/measurement.h"},
    "cli": {"worker/checkpoint/hugging_face.h", "worker/checkpoint/offline.h"},
}
# The inner rooms of a room, from the lowest to the highest. A file may include files of its own inner room and of those
# before it in the list; rooms in one tuple do not include each other. A file directly in the outer folder, such as a
# program, may include all of them, but none of them may include it. docs/ARCHITECTURE.md says what each room is for.
INNER_ORDER = {
    "planner": ("schedule", "problem", "program", "cost", "recompute", "plan", "lower", "candidates", "stages", "search", "frameworks",
                ("report", "opt"), "export"),
    "server": ("values", "scheduling", "health", "controller", "metrics", "wire", "store", "loop", "access", "services"),
    "server/controller": ("state", "jobs"),
    "cli": ("spec", "frameworks", "connect", "local", "output", "verbs", "surface"),
    "worker": ("contract", "backend", "collectives", "data", "model", "checkpoint", "copies", "engine",
               ("rank", "daemon")),
    "worker/rank": ("process", "measure", "records", "peers", "check", "states"),
}
# The rooms that have a namespace of their own, lynx::ROOM. All other rooms and SHARED_FOLDERS use namespace lynx.
NAMED_ROOMS = ("server", "cli", "agent", "worker", "python")
SHARED_FOLDERS = ("worker/contract",)
# A folder with more files of its own is hard to survey and needs inner rooms.
MOST_FILES = 40
# A class of the server with a longer header, or with more private functions, is several classes.
MOST_HEADER_LINES = 300
MOST_PRIVATE_FUNCTIONS = 40
# Only worker/backend/cuda and these files may include headers of CUDA.
CUDA_FILES = {f"worker/collectives/{name}" for name in ("nccl_communicator.cc", "nccl_line.cc", "nccl_line.h")}
CUDA = re.compile(r"^(cuda.*|cublas.*|cudnn.*|nccl.*|nvml.*|.*\.cuh)$")
SUFFIXES = (".h", ".cc", ".cuh", ".cu")
PROTOBUF = re.compile(r"(grpcpp|google/protobuf|\.pb\.h|sqlite3|libpq)")
IMPURE = re.compile(r"^(thread|mutex|condition_variable|atomic|fstream|iostream|filesystem|random|chrono|ctime|unistd\.h|"
                    r"sys/.*|grpcpp/.*|google/.*|sqlite3\.h|libpq.*|common/clock\.h|common/rng\.h|.*\.pb\.h)$")
# The planner looks at a clock only for OPT's time limit.
IMPURE_ALLOWED = {("planner/opt/stage_opt.cc", "chrono")}
IMPURE_CALLS = re.compile(r"\b(getenv|rand|srand|time|clock_gettime|fopen|printf)\s*\(")


def sources():
    for room in ROOMS:
        yield from (p for p in sorted((ROOT / room).rglob("*")) if p.suffix in SUFFIXES)


def room_of(path):
    """The room of a path, which is given as text relative to the root."""
    return next((room for room in INNER_ROOMS if path.startswith(room + "/")), path.split("/")[0])


def room_of_file(path):
    return room_of(path.relative_to(ROOT).as_posix())


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1)


def inner_room(outer, path):
    """The inner room of a path below `outer`; "" for a file directly in the outer folder."""
    folder, _, rest = path.removeprefix(outer + "/").partition("/")
    return folder if rest else ""


def arrows_back_up(outer, order, included):
    """Includes in the room `outer` that break `order`, a value of INNER_ORDER. `included`: (path, line, included path)."""
    bad = []
    height = {"": len(order)}
    for place, rooms in enumerate(order):
        height |= dict.fromkeys((rooms,) if isinstance(rooms, str) else rooms, place)
    for path, number, name in included:
        if not (path.startswith(outer + "/") and name.startswith(outer + "/")):
            continue
        room, target = inner_room(outer, path), inner_room(outer, name)
        for unknown in {room, target} - height.keys():
            bad.append(f"{path}:{number}: INNER_ORDER has no place for {outer}/{unknown}")
        if room != target and {room, target} <= height.keys() and height[target] >= height[room]:
            bad.append(f"{path}:{number}: {outer}/{room} includes {name}, which does not stand below it")
    return bad


def wrong_namespace(path, text):
    """The violation in a C++ file that opens another namespace than its room's; None if there is none."""
    shared = any(path.startswith(folder + "/") for folder in SHARED_FOLDERS)
    room = next((room for room in NAMED_ROOMS if path.startswith(room + "/") and not shared), None)
    for namespace in re.findall(r"^namespace (lynx[\w:]*) \{", text, re.MULTILINE):
        named = next((part for part in namespace.split("::")[1:2] if part in NAMED_ROOMS), None)
        if named != room:
            return f"{path}: opens {namespace}, but its room's namespace is lynx{'::' + room if room else ''}"
    return None


def full_folders(paths, most):
    """Folders that directly contain more than `most` of these paths."""
    counts = collections.Counter(path.rpartition("/")[0] for path in paths)
    return [f"{folder}: {n} files, more than {most}" for folder, n in sorted(counts.items()) if n > most]


def private_functions(text):
    """For each class of a header: its name and how many functions its private parts declare."""
    counts = []
    for match in re.finditer(r"^class (\w+)[^;{]*\{$(.*?)^\};$", text, re.MULTILINE | re.DOTALL):
        private = "".join(part.split("\n public:")[0].split("\n protected:")[0] for part in match[2].split("\n private:")[1:])
        code = re.sub(r"//.*", "", private)
        counts.append((match[1], len(re.findall(r"\w\([^;{}]*\)\s*(?:const\s*)?(?:noexcept\s*)?(?:override\s*)?[;{]", code))))
    return counts


def parameter_lists(text):
    """(line, name, parameters) of each function in a C++ text that names its parameters, and of each call."""
    text = re.sub(r"//[^\n]*", "", text)
    for match in re.finditer(r"([A-Za-z_]\w*)\s*\(", text):
        depth, end, begin, parameters = 1, match.end(), match.end(), []
        while end < len(text) and depth > 0:
            depth += (text[end] in "(<{[") - (text[end] in ")>}]" and text[end - 1] != "-")
            if (depth == 1 and text[end] == ",") or depth == 0:
                parameters.append(" ".join(text[begin:end].split()))
                begin = end + 1
            end += 1
        yield text[:match.start()].count("\n") + 1, match.group(1), parameters


def functions_of_two_bools(path, text):
    """Functions that take more than one bool: at a call nobody sees which is which."""
    return [f"{path}:{line}: {name} takes {n} bools; use an enum or a struct" for line, name, parameters in parameter_lists(text)
            if (n := sum(bool(re.fullmatch(r"(const )?bool \w+( ?=.*)?", parameter)) for parameter in parameters)) > 1]


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

    def test_inner_rooms_depend_in_one_direction(self):
        included = [(path.relative_to(ROOT).as_posix(), number, name) for path in sources() for number, name in includes(path)]
        self.assert_none([line for outer, order in INNER_ORDER.items() for line in arrows_back_up(outer, order, included)])

    def test_rooms_make_no_circle(self):
        graphlib.TopologicalSorter({room: targets - {room} for room, targets in MAY_INCLUDE.items()}).prepare()

    def test_namespaces_name_the_room(self):
        found = [wrong_namespace(path.relative_to(ROOT).as_posix(), path.read_text()) for path in sources()]
        self.assert_none([line for line in found if line])

    def test_folders_stay_readable(self):
        paths = [p.relative_to(ROOT).as_posix() for room in (*ROOMS, "tests") for p in (ROOT / room).rglob("*")
                 if p.is_file() and "__pycache__" not in p.parts]
        self.assert_none(full_folders(paths, MOST_FILES))

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

    def test_classes_of_the_server_stay_small(self):
        bad = []
        for path in sorted((ROOT / "server").rglob("*.h")):
            text = path.read_text()
            if (lines := len(text.splitlines())) > MOST_HEADER_LINES:
                bad.append(f"{path.relative_to(ROOT)}: {lines} lines, more than {MOST_HEADER_LINES}")
            bad += [f"{path.relative_to(ROOT)}: {name} has {n} private functions, more than {MOST_PRIVATE_FUNCTIONS}"
                    for name, n in private_functions(text) if n > MOST_PRIVATE_FUNCTIONS]
        self.assert_none(bad)

    @unittest.skipUnless(shutil.which("clang-format") and (ROOT / ".git").exists(), "needs clang-format and a git checkout")
    def test_sources_are_formatted(self):
        """To correct it: `git ls-files '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format -i`"""
        files = subprocess.run(["git", "ls-files", "*.cc", "*.h", "*.cu", "*.cuh"], cwd=ROOT, capture_output=True, text=True, check=True)
        result = subprocess.run(["clang-format", "--dry-run", "-Werror", *files.stdout.split()], cwd=ROOT, capture_output=True, text=True)
        self.assert_none(sorted({line.split(": error")[0] for line in result.stderr.splitlines() if ": error" in line}))

    def test_every_test_is_in_a_program(self):
        named = {word for path in (ROOT / "tests").rglob("CMakeLists.txt") for word in re.findall(r"[\w./]*_test\.cc", path.read_text())}
        found = {path for path in (ROOT / "tests").rglob("*_test.cc")}
        self.assert_none([str(path.relative_to(ROOT)) for path in sorted(found) if not any(path.as_posix().endswith("/" + word.replace("../", "")) for word in named)])
        self.assertGreater(len(found), 100)

    def test_each_type_is_defined_once(self):
        """Two types with the same name in one namespace violate the one-definition rule, and no linker reports it."""
        known, bad = {}, []
        for path in sources():
            if path.suffix not in (".h", ".cuh"):
                continue
            text = path.read_text()
            namespace = (re.findall(r"^namespace ([\w:]+) \{", text, re.M) or [""])[0]
            for name in re.findall(r"^(?:struct|class|enum class) (\w+)(?: final)?(?: :[^;{]*)? ?\{", text, re.M):
                other = known.setdefault((namespace, name), path)
                if other != path:
                    bad.append(f"{path.relative_to(ROOT)}: {namespace}::{name} is also defined in {other.relative_to(ROOT)}")
        self.assert_none(bad)

    def test_no_function_takes_two_bools(self):
        self.assert_none([line for path in sources()
                          for line in functions_of_two_bools(path.relative_to(ROOT).as_posix(), path.read_text())])

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


class ChecksTest(unittest.TestCase):
    """Runs the checks above on sources that break a rule."""

    def found(self, path, name):
        return arrows_back_up("house", ("cellar", "hall", ("attic", "tower")), [(path, 7, name)])

    def test_an_include_of_a_lower_room_is_allowed(self):
        self.assertEqual(self.found("house/hall/chair.cc", "house/cellar/wine.h"), [])
        self.assertEqual(self.found("house/hall/chair.cc", "house/hall/table.h"), [])
        self.assertEqual(self.found("house/door.cc", "house/attic/box.h"), [])
        self.assertEqual(self.found("house/cellar/wine.cc", "garden/grape.h"), [])

    def test_an_include_that_runs_back_up_is_reported(self):
        self.assertEqual(self.found("house/hall/chair.cc", "house/attic/box.h"),
                         ["house/hall/chair.cc:7: house/hall includes house/attic/box.h, which does not stand below it"])
        self.assertEqual(self.found("house/attic/box.h", "house/door.h"),
                         ["house/attic/box.h:7: house/attic includes house/door.h, which does not stand below it"])

    def test_an_include_between_rooms_side_by_side_is_reported(self):
        self.assertEqual(self.found("house/attic/box.h", "house/tower/bell.h"),
                         ["house/attic/box.h:7: house/attic includes house/tower/bell.h, which does not stand below it"])

    def test_a_room_without_a_place_is_reported(self):
        self.assertEqual(self.found("house/shed/rake.cc", "house/hall/table.h"),
                         ["house/shed/rake.cc:7: INNER_ORDER has no place for house/shed"])

    def test_private_functions_are_counted(self):
        header = """class House {
 public:
  void Enter();

 private:
  // Cleans (all) rooms.
  void Clean(int rooms, const std::function<bool(int)>& wanted);
  static bool IsClean(int room) { return room > 0; }
  int rooms_ = 0;
};

struct Garden {
  void Water();
};
"""
        self.assertEqual(private_functions(header), [("House", 2)])

    def test_a_function_of_two_bools_is_reported(self):
        self.assertEqual(functions_of_two_bools("a.h", "void F(const std::map<int, bool>& known, bool open);\nbool b(bool x);"), [])
        self.assertEqual(functions_of_two_bools("a.h", "// f(x, true, false)\nint F(std::function<int(bool)> g,\n      bool open,"
                                                "\n      bool last = false);"),
                         ["a.h:2: F takes 2 bools; use an enum or a struct"])

    def test_another_rooms_namespace_is_reported(self):
        self.assertIsNone(wrong_namespace("server/store/store.h", "namespace lynx::server {\nnamespace lynx::server::sim {\n"))
        self.assertIsNone(wrong_namespace("planner/cost/cost.h", "namespace lynx {\n"))
        self.assertEqual(wrong_namespace("server/store/store.h", "namespace lynx {\n"),
                         "server/store/store.h: opens lynx, but its room's namespace is lynx::server")
        self.assertEqual(wrong_namespace("worker/contract/lease.h", "namespace lynx::worker {\n"),
                         "worker/contract/lease.h: opens lynx::worker, but its room's namespace is lynx")

    def test_a_folder_with_too_many_files_is_reported(self):
        paths = [f"house/hall/{i}.cc" for i in range(MOST_FILES)] + ["house/door.cc"]
        self.assertEqual(full_folders(paths, MOST_FILES), [])
        self.assertEqual(full_folders(paths + ["house/hall/one_more.cc"], MOST_FILES),
                         [f"house/hall: {MOST_FILES + 1} files, more than {MOST_FILES}"])


if __name__ == "__main__":
    unittest.main()

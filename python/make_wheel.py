"""Makes a wheel of the package: make_wheel.py BUILD_FOLDER [--version VERSION] [--out FOLDER]. Prints its path.

The wheel has the package and the exact solver's program as they were built, and nothing of other projects: where it is
installed, the shared libraries of Debian 12 (or of the system on which it was built) must be there; docs/python.md lists
their packages. So its tag says Linux and not manylinux. The same build gives the same bytes. It needs no network, and only
Python's own library. """

import argparse
import base64
import hashlib
import pathlib
import re
import zipfile

FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
METADATA = """Metadata-Version: 2.1
Name: lynx-planner
Version: {version}
Summary: Plans activation recomputation for training, and talks to clusters that run the plans
Requires-Python: {python}
Provides-Extra: pandas
Requires-Dist: pandas ; extra == 'pandas'
"""
WHEEL = """Wheel-Version: 1.0
Generator: lynx
Root-Is-Purelib: false
Tag: {tag}
"""


def tag_of(suffix):
    """The wheel's tag for extensions with this suffix: "cp311-cp311-linux_x86_64" for ".cpython-311-x86_64-linux-gnu.so"."""
    name, version, machine = suffix.strip(".").split("-")[:3]
    if name != "cpython":
        raise SystemExit(f"error: {suffix} is no suffix of CPython's extensions")
    return f"cp{version}-cp{version}-linux_{machine}", f"=={version[0]}.{version[1:]}.*"


def files_of(build):
    """Name in the wheel -> file."""
    package = build / "python" / "lynx"
    extensions = sorted(package.glob("_lynx*.so"))
    if len(extensions) != 1:
        raise SystemExit(f"error: {package} has {len(extensions)} extensions instead of one: "
                         f"cmake --build {build} --target python_package")
    files = {f"lynx/{path.relative_to(package).as_posix()}": path for path in sorted(package.rglob("*"))
             if path.is_file() and "__pycache__" not in path.parts}
    return files, extensions[0].name.removeprefix("_lynx")


def digest_of(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def version_of(build):
    """The project's version, as CMake has noted it in the build folder."""
    cache = build / "CMakeCache.txt"
    found = re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$", cache.read_text() if cache.is_file() else "", re.MULTILINE)
    if not found:
        raise SystemExit(f"error: {build} is no build folder: cmake --preset release, then "
                         "cmake --build build --target python_package")
    return found.group(1)


def write_wheel(build, version, out):
    files, suffix = files_of(build)
    tag, python = tag_of(suffix)
    info = f"lynx_planner-{version}.dist-info"
    contents = {name: (path.read_bytes(), name.endswith(".so")) for name, path in files.items()}
    contents["lynx/lynx-opt"] = ((build / "bin" / "lynx-opt").read_bytes(), True)
    contents[f"{info}/METADATA"] = (METADATA.format(version=version, python=python).encode(), False)
    contents[f"{info}/WHEEL"] = (WHEEL.format(tag=tag).encode(), False)
    record = "".join(f"{name},sha256={digest_of(data)},{len(data)}\n" for name, (data, _) in contents.items())
    contents[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), False)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"lynx_planner-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, program) in contents.items():
            entry = zipfile.ZipInfo(name, FIRST_TIME)
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--version", help="default: the project's")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    version = options.version or version_of(options.build)
    print(write_wheel(options.build, version, options.out or options.build / "packages"))


if __name__ == "__main__":
    main()

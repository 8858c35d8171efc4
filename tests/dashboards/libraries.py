"""Fetches libraries with npm for tests of the dashboards."""

import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "packages"))

from debian_tree import Unavailable  # noqa: E402


def fetch(package, folder, patience):
    """Fetches what package.json in the folder `package` asks for, into a copy of that folder. Unavailable says why it cannot."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")
    shutil.copytree(package, folder, dirs_exist_ok=True)
    try:
        done = subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder, capture_output=True,
                              text=True, timeout=patience, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm has not brought the libraries within {patience} s") from None
    if done.returncode != 0:
        raise Unavailable(f"npm cannot bring the libraries here: {done.stderr[-500:]}")

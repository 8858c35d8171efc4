"""Tests that scripts/package.sh says which program is missing. scripts/packages.txt names the packages of all programs that it
needs."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
PROGRAMS = re.search(r"^for program in (.*); do$", (SCRIPTS / "package.sh").read_text(), re.MULTILINE).group(1).split()
COME_ALONG = {"dpkg", "dpkg-dev"}  # dpkg is in every Debian; build-essential installs dpkg-dev


class PackageTest(unittest.TestCase):
    def test_what_is_missing_is_named(self):
        for missing in PROGRAMS:
            with tempfile.TemporaryDirectory(prefix="lynx-package-") as folder:
                for program in {"bash", "dirname", *PROGRAMS} - {missing}:
                    (pathlib.Path(folder) / program).symlink_to(shutil.which(program))
                done = subprocess.run([str(pathlib.Path(folder) / "bash"), str(SCRIPTS / "package.sh")], env={"PATH": folder}, capture_output=True,
                                      text=True, timeout=60, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"error: there is no {missing}, with which packages are made: apt-get install", done.stderr)

    @unittest.skipIf(shutil.which("dpkg-query") is None, "this is not Debian")
    def test_what_it_needs_is_installed_with_the_rest(self):
        listed = {line.split("#")[0].strip() for line in (SCRIPTS / "packages.txt").read_text().splitlines()}
        for program in PROGRAMS:
            owner = subprocess.run(["dpkg-query", "--search", shutil.which(program)], capture_output=True, text=True, check=True).stdout.split(":")[0]
            self.assertIn(owner, listed | COME_ALONG)


if __name__ == "__main__":
    unittest.main()

"""Tests that scripts/install.sh installs the missing packages, and starts no server that a package brings."""

import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
POLICY = "policy=/usr/sbin/policy-rc.d\n"
# A fake apt-get. It records its arguments. It also runs the policy script, if there is one, and records its exit
# code: apt starts a server only if the policy script allows this.
APT_GET = """#!/bin/sh
echo "$*" >>{folder}/asked
[ -x {folder}/policy-rc.d ] && {{ {folder}/policy-rc.d; echo "policy $?" >>{folder}/asked; }}
exit {code}
"""


class InstallTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="lynx-install-")
        self.addCleanup(directory.cleanup)
        self.folder = pathlib.Path(directory.name)
        (self.folder / "packages.txt").write_text("there # comment\n\nmissing\n")
        (self.folder / "packages-tests.txt").write_text("browser\n")
        text = (SCRIPTS / "install.sh").read_text()
        self.assertIn(POLICY, text)
        (self.folder / "install.sh").write_text(text.replace(POLICY, f"policy={self.folder}/policy-rc.d\n"))
        self.program("dpkg-query", '#!/bin/sh\n[ "$3" = there ] && echo installed\n')
        self.program("sudo", '#!/bin/sh\nexec "$@"\n')

    def program(self, name, text):
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)

    def install(self, *arguments, code=0):
        self.program("apt-get", APT_GET.format(folder=self.folder, code=code))
        env = dict(os.environ, PATH=f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        return subprocess.run(["bash", str(self.folder / "install.sh"), *arguments], env=env, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)

    def asked(self):
        return (self.folder / "asked").read_text()

    def test_no_server_is_started_and_nothing_is_left(self):
        done = self.install()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--no-install-recommends missing", self.asked())
        self.assertIn("policy 101", self.asked())
        self.assertFalse((self.folder / "policy-rc.d").exists())

    def test_nothing_is_left_after_a_failure(self):
        done = self.install(code=1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get could not install the packages", done.stderr)
        self.assertFalse((self.folder / "policy-rc.d").exists())

    def test_what_only_tests_need_is_asked_for(self):
        self.assertEqual(self.install().returncode, 0)
        self.assertNotIn("browser", self.asked())
        self.assertEqual(self.install("--tests").returncode, 0)
        self.assertIn("--no-install-recommends missing browser", self.asked())

    def test_an_unknown_option_is_refused(self):
        done = self.install("--everything")
        self.assertEqual((done.returncode, done.stderr), (2, "usage: install.sh [--tests]\n"))

    def test_a_policy_of_the_machine_stands(self):
        policy = self.folder / "policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 0\n")
        policy.chmod(stat.S_IRWXU)
        self.assertEqual(self.install().returncode, 0)
        self.assertIn("policy 0", self.asked())
        self.assertEqual(policy.read_text(), "#!/bin/sh\nexit 0\n")


if __name__ == "__main__":
    unittest.main()

"""Tests that lynxctl reports wrong and useless options about the server, and that a watch of a silent server can be ended."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import unittest

import test_outputs

BIN = pathlib.Path(os.environ.get("LYNX_BIN", pathlib.Path(__file__).resolve().parents[2] / "build" / "bin"))
FILES = ("--server", "--context", "--ca-file", "--token-file")


class ConnectionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lynx-connection-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LYNX_") or name == "LYNX_BIN"}
        self.env.update(HOME=folder.name, XDG_CONFIG_HOME=f"{folder.name}/config", LYNX_HOME=folder.name)

    def ctl(self, *arguments, **variables):
        return subprocess.run([BIN / "lynxctl", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                              env=dict(self.env, **variables), stdin=subprocess.DEVNULL)

    def test_an_empty_value_is_refused(self):
        for option in FILES:
            done = self.ctl("list", option, "")
            self.assertEqual(done.returncode, 2, (option, done))
            self.assertIn(f"{option}: the value is empty", done.stderr)

    def test_no_context_and_the_files(self):
        (self.folder / "token").write_text("secret")
        (self.folder / "token").chmod(0o600)
        done = self.ctl("--no-context", "--server", "127.0.0.1:1", "--token-file", self.folder / "token", "list")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("a token is only sent over TLS: give --ca-file", done.stderr)
        done = self.ctl("--no-context", "--server", "127.0.0.1:1", "--ca-file", self.folder / "none", "list")
        self.assertEqual(done.returncode, 4, done)
        self.assertIn(f"{self.folder}/none", done.stderr)
        done = self.ctl("--no-context", "--context", "prod", "list")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("--context excludes --no-context", done.stderr)

    def test_no_context_ignores_the_one_in_use(self):
        self.assertEqual(self.ctl("--server", "127.0.0.1:1", "context", "add", "prod").returncode, 0)
        self.assertEqual(self.ctl("context", "use", "prod").returncode, 0)
        self.assertIn("127.0.0.1:1", self.ctl("--timeout", "2", "list").stderr)
        done = self.ctl("--no-context", "context", "add", "other", LYNX_CONTEXT="prod")
        self.assertIn("(from the default)", done.stdout)
        self.assertIn("prod", self.ctl("context", "add", "third", LYNX_CONTEXT="prod").stdout)

    def test_an_address_with_a_scheme_is_refused(self):
        done = self.ctl("--server", "http://127.0.0.1:1", "--ca-file", self.folder / "none", "list")
        self.assertEqual(done.returncode, 4, done)  # the file is read first
        done = self.ctl("--server", "http://127.0.0.1:1", "list")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("--server: \"http://127.0.0.1:1\" does not name servers", done.stderr)

    def test_options_of_no_use_are_told(self):
        given = ["--server", "127.0.0.1:1", "--context", "prod", "--ca-file", "ca.pem", "--token-file", "token", "--timeout", "5"]
        quick = [words for words in test_outputs.OFFLINE if words[0] not in ("compare", "explain", "whatif")]
        for words in [*quick, ("import", "--from", "megatron", "none"), ("local", "status"), ("checkpoint", "verify", "none")]:
            done = self.ctl(*given, *words)
            unused = [option for option in given[::2] if words[0] != "local" or option != "--timeout"]
            self.assertEqual(re.findall("lynxctl: note: '.*", done.stderr),
                             [f"lynxctl: note: '{words[0]}' does not use {', '.join(unused)}; leave them out"], words)
            self.assertNotIn("note: ", self.ctl(*words).stderr, words)
        self.assertNotIn("does not use", self.ctl("--timeout", "5", "--server", "127.0.0.1:1", "nodes").stderr)

    def test_what_defaults_would_not_use_is_refused(self):
        for words, why in ((("--set", "train.steps=7"), "--set requires --file"),
                           (("-f", "job.yaml", "--reference"), "--file excludes --reference"),
                           (("--schema", "--reference"), "excludes")):
            done = self.ctl("defaults", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(why, done.stderr)


class SilentServerTest(unittest.TestCase):
    """A server that takes the connection and never answers."""

    def test_a_watch_can_be_ended(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            for words in (["watch", "j"], ["events", "j", "--follow"], ["logs", "j", "--follow"], ["top"]):
                for end in (signal.SIGINT, signal.SIGTERM):
                    with subprocess.Popen([BIN / "lynxctl", "--server", address, "--timeout", "3600", *words], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
                        try:
                            connection, _ = silent.accept()
                            with connection:
                                connection.recv(1)  # it has connected, and waits
                                watch.send_signal(end)
                                self.assertIn(watch.wait(timeout=60), (-end, 130), words)
                        finally:
                            watch.kill()


if __name__ == "__main__":
    unittest.main()

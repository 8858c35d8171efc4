"""Tests that a watch ends immediately when it is told to, whatever it waits for: here for servers that never answer."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import unittest

# Every wait for a server is an hour long, so a program that waits for one outlasts the test's limit.
PROGRAM = """
import sys
import lynx

watch = lynx.Client(sys.argv[1].split(","), no_context=True, timeout=3600).watch("job")
try:
    print("watches", flush=True)
    next(watch)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
# A process ends only after its watches have ended.
CLOSING = """
import sys
import threading
import lynx

watch = lynx.Client(sys.argv[1].split(","), no_context=True, timeout=3600).watch("job")
looks = threading.Thread(target=lambda: print("seen", list(watch), flush=True))
looks.start()
print("watches", flush=True)
sys.stdin.readline()
watch.close()
looks.join()
"""
LIMIT = 120


class SilentServerTest(unittest.TestCase):
    def setUp(self):
        self.silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for one in self.silent:
            self.addCleanup(one.close)
        self.addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in self.silent]

    def accepts(self):
        """Waits until the program has connected. The connection stays open, and nothing is answered."""
        connection, _ = self.silent[0].accept()
        self.addCleanup(connection.close)
        connection.recv(1)

    def refuses_once(self):
        """Waits until the program has connected, and ends the connection without an answer. Later ones are refused."""
        connection, _ = self.silent[0].accept()
        self.silent[0].close()
        connection.close()

    @contextlib.contextmanager
    def watching(self, text, addresses, last):
        """A program that watches. After the block, the program must end by itself and in time; it writes `last` at its end."""
        with subprocess.Popen([sys.executable, "-c", text, ",".join(addresses)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, env=os.environ) as program:
            try:
                self.assertEqual(program.stdout.readline(), "watches\n")
                yield program
                self.assertEqual(program.wait(timeout=LIMIT), 0)
                self.assertEqual(program.stdout.read(), last)
            finally:
                program.kill()

    def interrupted(self, addresses, connected):
        """Begins the program, and sends Ctrl-C once it watches; `connected` waits until it has connected."""
        with self.watching(PROGRAM, addresses, "interrupted\n") as program:
            connected()
            program.send_signal(signal.SIGINT)

    def test_ctrl_c_at_a_silent_server(self):
        self.interrupted(self.addresses[:1], self.accepts)

    def test_ctrl_c_at_several_silent_servers(self):
        self.interrupted(self.addresses, self.accepts)

    def test_ctrl_c_between_two_tries(self):
        self.silent[1].close()
        self.interrupted(self.addresses, self.refuses_once)

    def test_closing_ends_a_loop_in_another_thread(self):
        with self.watching(CLOSING, self.addresses[:1], "seen []\n") as program:
            self.accepts()
            program.stdin.write("close\n")
            program.stdin.flush()


if __name__ == "__main__":
    unittest.main()

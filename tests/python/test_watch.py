"""A watch ends at once when it is told to, whatever it waits for: here servers that never answer."""

import os
import signal
import socket
import subprocess
import sys
import threading
import unittest

import lynx

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

    def interrupted(self, addresses, connected):
        """Begins the program, and sends Ctrl-C once it watches; `connected` waits until it has connected."""
        with subprocess.Popen([sys.executable, "-c", PROGRAM, ",".join(addresses)], stdout=subprocess.PIPE, text=True,
                              env=os.environ) as program:
            try:
                self.assertEqual(program.stdout.readline(), "watches\n")
                connected()
                program.send_signal(signal.SIGINT)
                self.assertEqual(program.wait(timeout=LIMIT), 0)
                self.assertEqual(program.stdout.read(), "interrupted\n")
            finally:
                program.kill()

    def test_ctrl_c_at_a_silent_server(self):
        self.interrupted(self.addresses[:1], self.accepts)

    def test_ctrl_c_at_several_silent_servers(self):
        self.interrupted(self.addresses, self.accepts)

    def test_ctrl_c_between_two_tries(self):
        for one in self.silent:
            one.close()  # connections are refused, and the watch tries again and again
        self.interrupted(self.addresses, lambda: None)

    def test_closing_ends_a_loop_in_another_thread(self):
        watch = lynx.Client(self.addresses[0], no_context=True, timeout=3600).watch("job")
        seen = []
        looks = threading.Thread(target=lambda: seen.extend(watch), daemon=True)
        looks.start()
        self.accepts()
        watch.close()
        looks.join(LIMIT)
        self.assertFalse(looks.is_alive())
        self.assertEqual(seen, [])


if __name__ == "__main__":
    unittest.main()

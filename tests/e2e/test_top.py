"""`lynxctl top` as it is on a terminal: it draws again and again, tells when the server is away, and leaves the terminal as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from cluster import BIN, ClusterTest

ROWS, COLUMNS = 30, 110
ENTERED, LEFT = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command, env):
        self.outer, self.inner = pty.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(self.inner)
        self.text = ""
        self.process = subprocess.Popen(command, stdin=self.inner, stdout=self.inner, stderr=self.inner, env=env, start_new_session=True)

    def read(self, seconds):
        ready, _, _ = select.select([self.outer], [], [], seconds)
        if ready:
            self.text += os.read(self.outer, 1 << 16).decode(errors="replace")
        return bool(ready)

    def screens(self):
        """What was drawn, whole screens, as lines without colours."""
        drawn = self.text.split("\x1b[H")[1:]
        return [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", one).replace("\r", "").split("\n") for one in drawn if one.endswith("\x1b[J") or one is not drawn[-1]]

    def until(self, condition, what, patience=60):
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {patience} s: {what}; drawn:\n" + "\n".join(self.screens()[-1] if self.screens() else [self.text]))
            self.read(0.1)

    def wait(self):
        code = self.process.wait(timeout=60)
        while self.read(0.2):
            pass
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.outer)
        os.close(self.inner)


class TopTest(ClusterTest):
    def top(self):
        terminal = Terminal([str(BIN / "lynxctl"), "top", "--interval", "0.2"], dict(self.env, LANG="C.UTF-8", TERM="xterm"))
        self.addCleanup(terminal.close)
        return terminal

    def rows(self, terminal, job):
        """The job's, of each screen."""
        return [line for screen in terminal.screens() for line in screen if line.startswith(job)]

    def test_a_terminal_shows_what_goes_on_until_q(self):
        job = self.submit(self.job_file(steps=100_000, every=1000))
        self.await_steps(job, 5)
        terminal = self.top()
        terminal.until(lambda: len(set(self.rows(terminal, job))) > 2, "three screens that tell of other steps")
        self.assertTrue(terminal.text.startswith(ENTERED))
        for screen in terminal.screens():
            self.assertLessEqual(len(screen), ROWS)
            self.assertLessEqual(max(map(len, screen)), COLUMNS)
        self.assertRegex(self.rows(terminal, job)[-1], rf"^{job} +tiny +RUNNING +\d+%.* [▁▂▃▄▅▆▇█]{{2}}")
        self.kill_daemon("server")
        terminal.until(lambda: any("127.0.0.1" in line and "reach" in line for line in terminal.screens()[-1]), "a server that is away")
        self.assertIn(job, "\n".join(terminal.screens()[-1]), "what was known of it stays")
        os.write(terminal.outer, b"q")
        self.assertEqual(terminal.wait(), 0)
        self.assertTrue(terminal.text.endswith(LEFT))
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.before)

    def test_ctrl_c_leaves_the_terminal_as_it_was(self):
        terminal = self.top()
        terminal.until(lambda: terminal.screens(), "a screen")
        terminal.process.send_signal(signal.SIGINT)
        self.assertEqual(terminal.wait(), 130)
        self.assertTrue(terminal.text.endswith(LEFT))
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.before)

"""Tests `lynxctl top` on a terminal: it updates its view, says when the server is away, and leaves the terminal as it was."""

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
    """A program on a terminal of its own. `controls`: the terminal's keys send signals to the program."""

    def __init__(self, command, env, controls=False):
        self.outer, self.inner = pty.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(self.inner)
        self.text = ""
        self.process = subprocess.Popen(command, stdin=self.inner, stdout=self.inner, stderr=self.inner, env=env, start_new_session=True,
                                        preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if controls else None)

    def read(self, seconds):
        ready, _, _ = select.select([self.outer], [], [], seconds)
        if ready:
            self.text += os.read(self.outer, 1 << 16).decode(errors="replace")
        return bool(ready)

    def screens(self):
        """The screens that were drawn completely, as lines without colours."""
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


# A shell with job control that runs `lynxctl top`. It prints a line when the program has stopped or ended. It then reads a
# word: "kill" ends the stopped program, any other word continues it. `tell` calls itself and is no loop, because a loop
# would end when the program stops for the first time.
SHELL = """set -m
tell() {
  code=$?
  if [ $code != 148 ]; then echo "ended with $code"; exit; fi
  echo "stopped, $(stty -a | grep -o -- '-\\?echo\\b')"
  read -r word
  if [ "$word" = kill ]; then
    program=$(jobs -p)
    kill %%
    while kill -0 "$program" 2> /dev/null; do sleep 0.1; done
    jobs
    exit
  fi
  fg > /dev/null
  tell
}
"$0" top --interval 0.2
tell
"""


class TopTest(ClusterTest):
    def top(self, kind="xterm"):
        terminal = Terminal([str(BIN / "lynxctl"), "top", "--interval", "0.2"], dict(self.env, LANG="C.UTF-8", TERM=kind))
        self.addCleanup(terminal.close)
        return terminal

    def shell(self):
        """Starts a shell on a terminal that runs `lynxctl top`, and waits for the first screen."""
        terminal = Terminal(["bash", "-c", SHELL, str(BIN / "lynxctl")], dict(self.env, LANG="C.UTF-8", TERM="xterm"), controls=True)
        self.addCleanup(terminal.close)
        terminal.until(lambda: terminal.screens(), "a screen")
        return terminal

    def suspend(self, terminal):
        """Suspends the program with Ctrl-Z. After that, only the shell writes to the terminal."""
        os.write(terminal.outer, b"\x1a")
        terminal.until(lambda: "stopped, " in terminal.text, "a shell that says that it has stopped")
        drawn, after = terminal.text.split("stopped, ")[0].rsplit(LEFT, 1)
        self.assertNotIn("\x1b", after, "the rest is the shell's")
        self.assertIn(ENTERED, drawn)
        terminal.until(lambda: terminal.text.endswith("\n"), "the end of the line")
        self.assertEqual(terminal.text.split("stopped, ")[-1].strip(), "echo")
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.before)
        terminal.text = ""

    def rows(self, terminal, job):
        """The job's row on each screen."""
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

    def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(self):
        terminal = self.shell()
        for _ in range(2):
            self.suspend(terminal)
            os.write(terminal.outer, b"on\n")
            terminal.until(lambda: len(terminal.screens()) > 1, "screens after it went on")
            self.assertIn(ENTERED, terminal.text)
            self.assertNotEqual(termios.tcgetattr(terminal.inner)[3] & termios.ECHO, terminal.before[3] & termios.ECHO, "keys are no text")
        os.write(terminal.outer, b"q")
        terminal.until(lambda: "ended with 0" in terminal.text, "an end")
        self.assertTrue(terminal.text.split("ended with")[0].endswith(LEFT))
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.before)

    def test_one_that_is_suspended_can_be_ended(self):
        terminal = self.shell()
        self.suspend(terminal)
        os.write(terminal.outer, b"kill\n")
        terminal.until(lambda: re.search(r"Exit 130 +.* top ", terminal.text), "an end")
        self.assertNotIn("\x1b[?1049", terminal.text)
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.before)

    def test_ctrl_backslash_and_a_hangup_leave_the_terminal_as_it_was(self):
        terminal = self.shell()
        os.write(terminal.outer, b"\x1c")
        terminal.until(lambda: "ended with 130" in terminal.text, "an end")
        self.assertTrue(terminal.text.split("ended with")[0].endswith(LEFT))
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.before)
        other = self.top()
        other.until(lambda: other.screens(), "a screen")
        other.process.send_signal(signal.SIGHUP)
        self.assertEqual(other.wait(), 130)
        self.assertTrue(other.text.endswith(LEFT))

    def test_a_stop_that_nobody_asks_for_is_drawn_over(self):
        terminal = self.top()
        terminal.until(lambda: terminal.screens(), "a screen")
        terminal.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        terminal.text = ""
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(lambda: ENTERED in terminal.text, "its own screen again")
        os.write(terminal.outer, b"q")
        self.assertEqual(terminal.wait(), 0)
        self.assertEqual(termios.tcgetattr(terminal.inner), terminal.before)

    def test_a_terminal_that_cannot_be_drawn_on_gets_it_once(self):
        terminal = self.top("dumb")
        self.assertEqual(terminal.wait(), 0)
        self.assertIn("2 nodes, ", terminal.text)
        self.assertNotIn("\x1b", terminal.text)

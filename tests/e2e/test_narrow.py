"""Tests the commands of lynxctl that update what they show of a job: on narrow terminals, on terminals without a cursor, and in
pipes."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import unittest

from cluster import BIN, ClusterTest

WAYS = (("watch", "{job}"), ("events", "{job}", "--follow"), ("top", "--once"))
LIMIT = 300  # seconds for one command


class NarrowTest(ClusterTest):
    def on_terminal(self, width, *words, awaited="", then=None, **variables):
        """What the command writes to a terminal with `width` columns. Once it has written `awaited`, `then` is called."""
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        env = {name: value for name, value in self.env.items() if name != "NO_COLOR"}
        process = subprocess.Popen([BIN / "lynxctl", *words], stdin=inner, stdout=inner, stderr=inner,
                                   env={**env, "TERM": "xterm", **variables})
        os.close(inner)
        limit = threading.Timer(LIMIT, process.kill)
        limit.start()
        text = b""
        while True:
            try:
                text += os.read(outer, 1 << 16)
            except OSError:  # the program has ended
                break
            if then and awaited.encode() in text:
                then()
                then = None
        os.close(outer)
        process.wait(timeout=60)
        limit.cancel()
        self.assertNotEqual(process.returncode, -signal.SIGKILL, f"{words} did not end in {LIMIT} s:\n{text.decode()}")
        return text.decode()

    def lines(self, text):
        """The lines on the screen, without colours; what a line overwrites counts as a line, too."""
        plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
        return [line for line in re.split(r"[\r\n]+", plain) if line]

    def test_views_of_a_job(self):
        # The job is so long that it cannot end before it is cancelled, which happens when a watch has shown a step.
        job = self.submit(self.job_file("narrow-terminals", steps=1_000_000, every=500))
        self.job = job
        self.await_steps(job, 1)
        for width in (40, 60):
            self.assertIn("RUNNING", self.fits(width, "top", "--once"))
        self.fits(40, "watch", job, awaited="step ", then=lambda: self.ctl("cancel", job))
        for way in WAYS:
            words = [word.format(job=job) for word in way]
            self.has_no_codes_elsewhere(words)
            for width in (40, 60):
                self.fits(width, *words)

    def fits(self, width, *words, **steps):
        shown = self.on_terminal(width, *words, **steps)
        for line in self.lines(shown.split(f"job {self.job}")[0]):  # the page at the end of a watch has wider tables
            room = width - (len(line) - len(line.lstrip()))
            if not any("/" in word and len(word) > room for word in line.split()):  # people copy paths, so these stay whole
                self.assertLessEqual(len(line), width, shown)
        return shown

    def has_no_codes_elsewhere(self, words):
        for shown in (self.ctl(*words).out, self.on_terminal(80, *words, TERM="dumb").replace("\r\n", "\n")):
            self.assertNotRegex(shown, "[\x1b\r]", words)
        self.assertNotRegex(self.on_terminal(80, *words, NO_COLOR="1"), r"\x1b\[[\d;]*m", words)


if __name__ == "__main__":
    unittest.main()

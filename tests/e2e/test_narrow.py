"""What lynxctl shows of a job again and again, on narrow terminals, on terminals without a cursor, and in pipes."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unittest

from cluster import BIN, ClusterTest

WAYS = (("watch", "{job}"), ("events", "{job}", "--follow"), ("top", "--once"))


class NarrowTest(ClusterTest):
    def on_terminal(self, width, *words, **variables):
        """What the command writes to a terminal of so many columns."""
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        env = {name: value for name, value in self.env.items() if name != "NO_COLOR"}
        process = subprocess.Popen([BIN / "lynxctl", *words], stdin=inner, stdout=inner, stderr=inner,
                                   env={**env, "TERM": "xterm", **variables})
        os.close(inner)
        text = b""
        while True:
            try:
                text += os.read(outer, 1 << 16)
            except OSError:  # the program has ended
                break
        os.close(outer)
        process.wait(timeout=60)
        return text.decode()

    def lines(self, text):
        """The lines on the screen, without colours; what a line overwrites counts as a line, too."""
        plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
        return [line for line in re.split(r"[\r\n]+", plain) if line]

    def test_views_of_a_job(self):
        job = self.submit(self.job_file("narrow-terminals", steps=2000, every=500))
        self.job = job
        self.await_steps(job, 1)
        for width in (40, 60):
            self.assertIn("RUNNING", self.fits(width, "top", "--once"))
        self.assertIn("step ", self.fits(40, "watch", job))
        for way in WAYS:
            words = [word.format(job=job) for word in way]
            self.has_no_codes_elsewhere(words)
            for width in (40, 60):
                self.fits(width, *words)

    def fits(self, width, *words):
        shown = self.on_terminal(width, *words)
        for line in self.lines(shown.split(f"job {self.job}")[0]):  # the page at the end of a watch has wider tables
            if "/" not in line:  # a path stays whole, so that people can copy it
                self.assertLessEqual(len(line), width, shown)
        return shown

    def has_no_codes_elsewhere(self, words):
        for shown in (self.ctl(*words).out, self.on_terminal(80, *words, TERM="dumb").replace("\r\n", "\n")):
            self.assertNotRegex(shown, "[\x1b\r]", words)
        self.assertNotRegex(self.on_terminal(80, *words, NO_COLOR="1"), r"\x1b\[[\d;]*m", words)


if __name__ == "__main__":
    unittest.main()

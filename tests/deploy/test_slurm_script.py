"""Runs deploy/slurm/lynx-nodes.sbatch with stand-ins for the programs of Slurm and Lynx, and counts how often the script
calls each of them. tests/e2e/test_slurm.py cannot count the calls, because it uses the real programs."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "slurm" / "lynx-nodes.sbatch"
NODES = 300
# Each stand-in records that it was called. The nodes are drained at the third look.
STAND_INS = {
    "lynxctl": """shift 2
case "$1" in
  nodes) shift
    look=$(($(cat "$CALLS/look" 2>/dev/null || echo 0) + 1)); echo $look > "$CALLS/look"
    state=draining; [ $look -lt 3 ] || state=drained
    echo "NODE STATE KIND"
    for name; do echo "$name  ready,$state  cpu"; done
    for name; do echo "$name: drained: Slurm job 7 ends (for 1s)"; done
    echo "nodes $#" >> "$CALLS/lynxctl" ;;
  node) [ -e "$CALLS/srun-ended" ] && after=" after its daemons" || after=
    words=0; for word; do case $word in slurm-7-*) words=$((words + 1)) ;; esac; done
    echo "$2 $words$after" >> "$CALLS/lynxctl" ;;
esac""",
    "lynx-agent": "",
    "scontrol": f'[ "$*" = "show hostnames n[0-{NODES - 1}]" ] && seq -f n%g 0 {NODES - 1}',
    "srun": """trap 'touch "$CALLS/srun-ended"; exit 0' TERM
touch "$CALLS/srun"
while :; do sleep 0.1; done""",
}


class SlurmScriptTest(unittest.TestCase):
    def catches(self, pid, number):
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(status["SigCgt"], 16) >> (number - 1) & 1

    def test_nodes_leave_together(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            calls = folder / "calls"
            calls.mkdir()
            for program, lines in STAND_INS.items():
                (folder / program).write_text(f"#!/bin/bash\n{lines}\n")
                (folder / program).chmod(0o755)
            env = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", CALLS=str(calls), LYNX_BIN=str(folder), LYNX_SERVER="head:7470", SLURM_JOB_ID="7",
                       SLURM_JOB_NODELIST=f"n[0-{NODES - 1}]")
            script = subprocess.Popen(["bash", str(SCRIPT)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.addCleanup(script.stdout.close)
            self.addCleanup(script.kill)
            deadline = time.monotonic() + 60
            while not (calls / "srun").exists() or not self.catches(script.pid, signal.SIGUSR1):
                self.assertLess(time.monotonic(), deadline, "it starts the daemons and waits for its signal")
                time.sleep(0.05)
            script.send_signal(signal.SIGUSR1)
            said, _ = script.communicate(timeout=120)
            self.assertEqual(script.returncode, 0, said)
            self.assertEqual((calls / "lynxctl").read_text().splitlines(),
                             [f"drain {NODES}", *[f"nodes {NODES}"] * 3, f"uncordon {NODES} after its daemons"], said)


if __name__ == "__main__":
    unittest.main()

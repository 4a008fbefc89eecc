"""What a question costs: a small process, warm as the operator's worker is, answers each in a child
of its own.

Its time is what the child computed, so a busy machine changes nothing; its memory is the most that
the child held.
"""

import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SECONDS = 60
"""When a child is killed. [s]"""
WARM = 130_000_000
"""What a warm process holds; of what the one that forks holds beyond it nothing counts. [B]"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the answer of a question took, and what it says."""

    seconds: float
    bytes: int
    outcome: str
    explanation: str


class Meter:
    """Asks one question after another."""

    def __init__(self):
        environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __call__(self, question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return Cost(**json.loads(self.process.stdout.readline()))

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def measured(work):
    """What a child of this process tells, and what it cost."""
    read, write = os.pipe()
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.write(write, json.dumps(work()).encode())
        os._exit(0)
    os.close(write)
    sent = b"".join(iter(lambda: os.read(read, 65536), b""))
    os.close(read)
    used = os.wait4(child, 0)[2]
    outcome, text = json.loads(sent) if sent else ("Died", "")
    spent = {
        "seconds": used.ru_utime + used.ru_stime,
        "bytes": used.ru_maxrss * 1024 - max(0, before - WARM),
    }
    return spent | {"outcome": outcome, "explanation": text}


def main():
    from mofa_operator.decide.answer import answer, warm
    from mofa_operator.snapshot import Question

    def asked(given):
        try:
            reply = answer(
                Question(job=given["job"], profiles=(given["profile"],), config_maps=given["files"])
            )
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is no answer
            return "Died", repr(error)[:500]
        return reply.outcome, reply.explanation[:500]

    warm()
    for line in sys.stdin:
        given = json.loads(line)
        sys.stdout.write(json.dumps(measured(lambda given=given: asked(given))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Inputs of every kind with things wrong in them: no traceback, no exit 1, nothing above ten
seconds of a core or 1 GiB.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from mutated import LONGEST, MOST, cases

PROGRAM = Path(__file__).parents[1] / "mutated.py"
SEED = int(os.environ.get("MOFA_MUTATION_SEED", "45"))


def run(count, capsys):
    given, wrong, codes = cases(count, SEED), [], Counter()
    slowest, largest = 0.0, 0
    with subprocess.Popen([sys.executable, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:  # fmt: skip
        for number, case in enumerate(given):
            child.stdin.write(json.dumps(case) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
            assert line, f"input {number} ended the process: {case}"
            said = json.loads(line)
            codes[said["code"]] += 1
            slowest, largest = max(slowest, said["seconds"]), max(largest, said["peak"])
            if said["why"] or said["seconds"] > LONGEST or said["peak"] > MOST:
                last = (said["why"].strip().splitlines() or [""])[-1]
                wrong.append(
                    f"{number} {case['argv'][:3]}: {said['seconds']:.1f} s, {said['peak'] >> 20} MiB, {last}"
                )
        child.stdin.close()
    with capsys.disabled():
        print(  # noqa: T201 - how much was tried is what it is for
            f"\n{count} mutated inputs, seed {SEED}: exit codes {dict(codes)}, slowest {slowest:.1f} s of a core, {largest >> 20} MiB, {len(wrong)} wrong"
        )
    assert wrong == []
    assert {0, 2} <= set(codes), "some are answered, and some refused"


def test_200_mutated_inputs_make_no_fault(capsys):
    run(200, capsys)


@pytest.mark.soak
def test_5000_mutated_inputs_make_no_fault(capsys):
    run(5000, capsys)

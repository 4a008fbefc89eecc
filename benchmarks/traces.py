"""What inspecting a trace costs, against its JSON reader alone, and in how much memory.

python benchmarks/traces.py            a quarter of a gigabyte
python benchmarks/traces.py 1.0        gigabytes of JSON

Ratios of processor time are compared, never times of the clock; ranges.toml says how much more than
the reading it may take.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
READ = """
import sys, time
from mofa_lab.traces.reader import Document, batches
import gc; gc.disable()
t = time.process_time()
n = sum(len(batch) for batch in batches(Document(sys.argv[1])))
print(time.process_time() - t, n)
"""
INSPECT = """
import sys, time
t = time.process_time()
from mofa_lab.traces.columns import load
from mofa_lab.traces.account import account
account(load(sys.argv[1]))
print(time.process_time() - t, 0)
"""


def generate(path: Path, size: float) -> None:
    """Steps of a training loop as the profiler writes them: an operator, a call, a kernel, and the
    arrow between.
    """
    names = [
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
        "flash_fwd_kernel<192,128>",
    ]
    names += [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::add>(int, "
            "std::array<char*, 3ul>)"
        )
    ]
    with path.open("w") as file:
        file.write(
            '{"schemaVersion": 1, "deviceProperties": [{"name": "NVIDIA H100"}], "traceEvents": [\n'
        )
        clock, n = 1.7e15, 0
        while file.tell() < size:
            n += 1
            clock += 30.0
            kernel = {
                "device": 0,
                "stream": 7,
                "context": 1,
                "correlation": n,
                "External id": n,
                "queued": 0,
            }
            kernel |= {
                "registers per thread": 168,
                "shared memory": 231424,
                "blocks per SM": 0.48,
                "grid": [32, 2, 1],
            }
            dims = {
                "External id": n,
                "Input Dims": [[4096, 4096], [4096, 6144]],
                "Ev Idx": n,
                "Sequence number": n,
            }
            call = {"External id": n, "cbid": 211, "correlation": n}
            rows = [
                {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": clock,
                    "dur": 25, "args": dims},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
                    "ts": clock + 8,
                 "dur": 6, "args": call},
                {"ph": "X", "cat": "kernel", "name": names[n % 3], "pid": 0, "tid": 7,
                    "ts": clock + 40, "dur": 28,
                 "args": kernel},
                {"ph": "s", "id": n, "pid": 9, "tid": 9, "ts": clock + 8, "cat": "ac2g",
                    "name": "ac2g"},
                {"ph": "f", "id": n, "pid": 0, "tid": 7, "ts": clock + 40, "cat": "ac2g",
                    "name": "ac2g", "bp": "e"},
            ]  # fmt: skip
            file.write(",\n".join(json.dumps(row) for row in rows) + ",\n")
        file.write(json.dumps(rows[0]) + '],"traceName": "generated"}\n')


def timed(program: str, path: Path) -> tuple[float, int]:
    """Processor time and events of a program in a process of its own. [s]"""
    output = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    ).stdout
    seconds, events = output.split()
    return float(seconds), int(events)


def main() -> int:
    """Make the file, read it, inspect it."""
    size = float(sys.argv[1]) if len(sys.argv) > 1 else 0.25
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        generate(path, size * 1e9)
        reading, events = timed(READ, path)
        inspecting, _ = timed(INSPECT, path)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(
        f"{size:g} GB, {events} events: read in {reading:.1f} s, inspected in {inspecting:.1f} s "
        "of a core"
    )
    from cluster import judged  # the benchmark beside this one

    measured = {"inspecting_over_reading": inspecting / reading, "megabytes": peak / 1e6}
    return judged(
        measured, tomllib.loads((HERE / "ranges.toml").read_text(encoding="utf-8"))["traces"]
    )


if __name__ == "__main__":
    sys.exit(main())

"""Packages of Debian or Ubuntu, installed where that is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence


def install(packages: Sequence[str], missing: Callable[[], str]) -> int:
    """Install packages where we may; 0 where nothing is missing afterwards, else 1 and the reason
    on standard error.
    """
    if packages and sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"mofa_local: installing {', '.join(packages)}", file=sys.stderr, flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            if subprocess.run(
                ["apt-get", "-qq", *words], env=quiet, stdout=sys.stderr, check=False
            ).returncode:
                break  # what is still missing is said below
    if why := missing():
        print(f"mofa_local: {why}", file=sys.stderr)
        return 1
    return 0

"""Installs the packages that a real node needs, where they are missing: `python -m mofa_local.real`, as root on Debian or Ubuntu."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from mofa_local.real.machine import absent_packages, missing


def main() -> int:
    """0 where a real node can be started afterwards, else 1 and the reason."""
    packages = absent_packages()
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


if __name__ == "__main__":
    sys.exit(main())

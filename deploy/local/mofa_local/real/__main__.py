"""Installs the packages that a real node needs, where they are missing: `python -m
mofa_local.real`, as root on Debian or Ubuntu.
"""

import sys

from mofa_local.debian import install
from mofa_local.real.machine import absent_packages, missing

if __name__ == "__main__":
    sys.exit(install(absent_packages(), missing))

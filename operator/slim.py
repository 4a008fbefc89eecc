"""Remove from the image what no verb reaches; run once while the image is built.

    kubernetes           123 MB, 22 stay: what reading a kubeconfig imports, no client for asyncio
    numpy, and others     20 MB less: tests, stubs for type checkers, headers, libraries to link

Byte code is counted in: it stands beside the sources because the image is read-only. What is
imported is found out by importing it, so another version of these packages needs no other list.
`tests/test_image.py` compares `USED` with the imports of the product, and runs every verb without
the rest.
"""

from __future__ import annotations

import importlib
import shutil
import site
import sys
from pathlib import Path

USED = ("kubernetes.client", "kubernetes.config")
"""What the product imports of packages that have much more."""
TESTS = ("tests", "test")
"""Folders that hold a package's own tests."""
TO_BUILD = ("*.pyi", "*.pyx", "*.pxd", "*.h", "*.a", "*.f", "*.f90")
"""Files that only compilers and type checkers read."""


def size_of(folder: Path) -> int:
    """Size of all files below a folder. [B]"""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def drop_tests(packages: Path) -> None:
    """Remove tests, and what nothing reads at run time."""
    for name in TESTS:
        for folder in [path for path in packages.rglob(name) if path.is_dir()]:
            shutil.rmtree(folder, ignore_errors=True)
    for pattern in TO_BUILD:
        for path in packages.rglob(pattern):
            path.unlink()


def drop_unreached(packages: Path) -> None:
    """Remove the parts of the packages in `USED` that no used module imports."""
    for name in USED:
        importlib.import_module(name)
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    needed = {parent for file in files if file for parent in Path(file).parents}
    for package in sorted({name.partition(".")[0] for name in USED}):
        for folder in sorted((packages / package).rglob("*")):
            is_code = any(folder.rglob("*.py")) or any(folder.rglob("*.so"))
            if (
                folder.is_dir()
                and folder.name != "__pycache__"
                and folder not in needed
                and is_code
            ):
                shutil.rmtree(folder)


def main() -> None:
    """Make the environment of the running Python smaller, and print by how much."""
    packages = Path(site.getsitepackages()[0])
    before = size_of(packages)
    drop_tests(packages)
    drop_unreached(packages)
    print(f"slim: {before / 1e6:.0f} MB of packages, {size_of(packages) / 1e6:.0f} MB stay")


if __name__ == "__main__":
    main()

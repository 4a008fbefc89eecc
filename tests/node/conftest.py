"""Tests of the real node: they need root, runc and containerd, and say that they skipped where
these are not.
"""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents and not item.get_closest_marker(
            "soak"
        ):  # which is not tried again
            item.add_marker(pytest.mark.cluster)

"""The public surface is a sorted list, every name on it exists, and importing the package
stays cheap.
"""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import mofa_model

PACKAGES = ["mofa_model"] + [
    f"mofa_model.{module.name}"
    for module in pkgutil.iter_modules(mofa_model.__path__)
    if module.ispkg
]


def in_order(name):
    """Constants, then classes, then functions, each by the alphabet: the order that ruff holds."""
    return (not name.isupper(), not name[0].isupper(), name)


@pytest.mark.parametrize("name", PACKAGES)
def test_what_a_package_exports_exists_and_is_sorted(name):
    package = importlib.import_module(name)
    exported = list(getattr(package, "__all__", []))
    assert exported == sorted(exported, key=in_order)
    assert len(exported) == len(set(exported))
    assert [one for one in exported if not hasattr(package, one)] == []


def test_the_package_has_a_public_surface():
    assert mofa_model.__all__


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = mofa_model.no_such_name


def test_importing_the_package_does_not_import_numpy():
    program = "import sys, mofa_model; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

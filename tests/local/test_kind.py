"""kind says which engine it would take, and of each other one why not."""

import subprocess

import pytest
from mofa_local import kind


def here(monkeypatch, *programs, root=True, info=0):
    monkeypatch.setattr(
        "mofa_local.kind.shutil.which", lambda name: name if name in programs else None
    )
    monkeypatch.setattr("mofa_local.kind.os.geteuid", lambda: 0 if root else 1000)
    done = subprocess.CompletedProcess([], info)
    monkeypatch.setattr("mofa_local.kind.subprocess.run", lambda *_, **__: done)


def test_docker_with_kind_is_taken_first_and_podman_without_kind_makes_its_own(monkeypatch):
    here(monkeypatch, "docker", "podman", "kind", "mmdebstrap")
    assert kind.engine() == "docker"
    here(monkeypatch, "docker", "podman", "mmdebstrap")
    assert kind.engine() == "podman"


def test_what_is_missing_is_told_of_each_engine(monkeypatch):
    here(monkeypatch, "docker", "podman", root=False)
    with pytest.raises(kind.NoKind) as said:
        kind.engine()
    for told in (
        "docker is there, but kind is not on PATH",
        "podman would need root",
        "nerdctl is not on PATH",
    ):
        assert told in str(said.value)
    here(monkeypatch, "podman", "mmdebstrap", info=125)
    with pytest.raises(kind.NoKind, match="podman info ends with 125"):
        kind.engine()

"""The steps of a Dockerfile, done in folders of this machine: what is below / in the image is below a folder here.

The base is this machine's Python and shell; both stages stand in one folder after another, so that paths in scripts hold.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

KNOWN = {"ARG", "FROM", "ENV", "RUN", "COPY", "LABEL", "USER", "WORKDIR", "EXPOSE", "ENTRYPOINT", "CMD"}
BASE = ("usr/local/lib/python3.12/site-packages/pip", "bin/sh", "usr/bin/apt", "usr/bin/dpkg")
"""What a base image has that the last step takes away."""
PLACE = re.compile(r"(?<![\w.:$}/-])/(?=(?:opt|tmp|src|usr|bin)\b)")


def steps(text):
    """Instructions and what stands behind each."""
    bare = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n\s*", "", bare).splitlines() if line.strip()]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


class Replay:
    """An image, as far as its steps were done."""

    def __init__(self, context, root):
        self.context, self.root, self.before = Path(context), Path(root) / "image", Path(root) / "build"
        self.environment, self.entry, self.command, self.folder, self.user = {}, [], [], "/", ""
        self.python = Path(root) / "python"
        self.python.mkdir(parents=True)
        for name in ("python", "python3"):
            (self.python / name).symlink_to(sys.executable)

    def run(self, text):
        for instruction, rest in steps(text):
            assert instruction in KNOWN, instruction
            getattr(self, f"_{instruction.lower()}", lambda _: None)(rest)
        return self

    def at(self, place):
        return self.root / place.lstrip("/")

    def started(self):
        """The environment and the command with which a container of it begins."""
        return self._environment(), [
            shutil.which(self.entry[0], path=self._environment()["PATH"]),
            *self.entry[1:],
        ]

    def _environment(self):
        given = {name: PLACE.sub(f"{self.root}/", value) for name, value in self.environment.items()}
        known = {
            name: os.environ[name]
            for name in ("HOME", "PIP_INDEX_URL", "SSL_CERT_FILE")
            if name in os.environ
        }
        tools = f"{self.python}:/usr/bin:/bin"
        return known | given | {"PATH": f"{given['PATH']}:{tools}" if "PATH" in given else tools}

    def _from(self, _):
        if self.root.exists():
            self.root.rename(self.before)
            self.environment = {}
        (self.root / "tmp").mkdir(parents=True)
        for name in BASE:
            self.at(name).parent.mkdir(parents=True, exist_ok=True)
            self.at(name).touch()

    def _env(self, rest):
        self.environment |= dict(one.split("=", 1) for one in rest.split())

    def _copy(self, rest):
        *sources, target = rest.split()
        built = sources[0].startswith("--from=build")
        for source in sources[built:]:
            origin = self.before / source.lstrip("/") if built else self.context / source
            place = self.at(target) / origin.name if target.endswith("/") else self.at(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            if built:
                origin.rename(place)
            elif origin.is_dir():
                shutil.copytree(
                    origin, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(origin, place)

    def _run(self, rest):
        command = json.loads(rest) if rest.startswith("[") else ["bash", "-euo", "pipefail", "-c", rest]
        placed = [PLACE.sub(f"{self.root}/", word) for word in command]
        environment = self._environment() | {"PIP_NO_CACHE_DIR": "0"}
        done = subprocess.run(
            placed, env=environment, cwd=self.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{rest}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"

    def _user(self, rest):
        self.user = rest

    def _workdir(self, rest):
        self.folder = rest

    def _entrypoint(self, rest):
        self.entry = json.loads(rest)

    def _cmd(self, rest):
        self.command = json.loads(rest)

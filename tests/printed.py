"""Commands that our own words tell people to type: each is run as it is printed, and says what
refused it.

What would change the cluster is tried by the API server alone (`--dry-run=server`); an editor
changes nothing.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PROGRAM = re.compile(r"(?:^|: )((?:kubectl|helm|mofa|curl) .+)$")
_CHANGES = re.compile(
    r"\b(kubectl (?:apply|create \w+|delete|label|annotate|patch|scale|set image)|helm (?:install|upgrade))\b"
)


def command_in(text):
    """The command in a sentence; empty where there is none."""
    match = _PROGRAM.search(text)
    return match[1] if match else ""


def refused(text, kubeconfig, folder, binaries):
    """What refused the command in a sentence; empty where nothing did, or where there is
    no command.
    """
    if not (command := command_in(text)):
        return ""
    folder.mkdir(exist_ok=True)
    for program in ("kubectl", "helm"):
        if program in command and not (folder / program).exists():
            (folder / program).symlink_to(binaries.path(program))
    path = os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ["PATH"]))
    tried = _CHANGES.sub(r"\1 --dry-run=server", command)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", tried],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "KUBECONFIG": str(kubeconfig), "EDITOR": "true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return f"{tried}: {done.stderr or done.stdout}" if done.returncode else ""

"""Commands of the README and of the documents, as a reader would type them, and where each of them
is run.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "runbooks").glob("*.md")]
)
_TYPED = re.compile(
    r"^    (?:\$ )?((?:MOFA_\w+=\S+ |PYTHONPATH=\S+ )?"
    r"(?:mofa|kubectl|helm|make|curl|pip|python|docker|promtool|\.venv/bin/python) .+)$"
)
_FENCE = re.compile(r"^```(\w*)$")
OPEN = ("…", "...", " …", "JOB ")
"""What stands for something that the reader is to put there."""
CLUSTER = (
    "kubectl ",
    "helm ",
    "curl ",
    "PYTHONPATH=",
    "for node in ",
    "sed 's/name: llama3-405b",
    "mofa incidents",
    "mofa profile --from-cluster",
    "mofa operator",
)
"""What asks a cluster, a Prometheus or the operator."""
ELSEWHERE = {
    "make ": "tests/test_readme.py runs the demo's commands, tests/cluster the stack's; this is `make test`",
    "pip install": "tests/test_packaging.py and test_notebook.py install the wheel, with and without the extra; test_pages.py holds the words",
    "mofa ui": "tests/test_notebook.py serves the page from the wheel",
    "mofa fit": "nine minutes of a core: `make validate`",
    "MOFA_CONSTANTS=out": "it reads what the fit writes",
    "python -m mofa_lab.kernels.measure": "it measures a GPU",
    "mofa incidents --prometheus http://prometheus": "labels, dates and ids of one's own: tests/cluster/test_incidents.py",
    "mofa incidents --slurm": "a Slurm site, or what one printed: tests/test_help.py reads saved outputs, tests/mofa_operator/observe/test_slurm.py too",
    "mofa check --base": "the git of one's own repository: tests/mofa_model/verbs/test_check.py makes one",
    "docker ": "it wants a container engine: tests/cluster/test_image.py builds the image",
    "kubectl apply -k deploy/local/toy": "pods that run need a real node: tests/node/test_whole_story.py",
    "helm test": "the pod that it starts needs an image",
    "kubectl -n mofa-system logs": "the local operator is a process, and has no pod",
    "curl localhost:8081": "a port that was forwarded from a pod; tests/mofa_operator/control/test_health.py asks it",
    "mofa operator --dry-run": "it runs until it is stopped: tests/cluster/test_operator.py",
}
"""Commands that no test of the documents runs, and what does, or why nothing can."""


def commands(page):
    """What a page has people type, in its order: indented lines and blocks of a shell, without what
    is said beside them.

    What a transcript shows of our command is run and compared by tests/docs/test_transcripts.py.
    """
    lines, fence = [], None
    for line in re.sub(r"\\\n *", "", page.read_text(encoding="utf-8")).splitlines():
        if opened := _FENCE.match(line):
            fence = None if fence is not None else opened[1]
        elif fence == "shell":
            lines.append(line)
        elif fence == "console" and line.startswith("$ ") and not line.startswith("$ mofa "):
            lines.append(line[2:])
        elif fence is None and (typed := _TYPED.match(line)):
            lines.append(re.split(r"  +| # ", typed[1])[0])
    commands = (re.sub(r" +", " ", line.strip()) for line in lines)
    return [line for line in commands if line and not any(start in f"{line} " for start in OPEN)]


def asks_a_cluster(line):
    """Whether a command is nothing for the desk."""
    return line.startswith(CLUSTER) or line.endswith("/tmp/pool.yaml")


def elsewhere(line):
    """Whether a command is run by other tests, or by none."""
    return line.startswith(tuple(ELSEWHERE))

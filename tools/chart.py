"""Make what follows from charts/mofa-advisor, and what it takes from elsewhere; --check compares.

crds/, deploy/rules, deploy/grafana ─▶ charts/mofa-advisor/files
mofa_model/kinds ─▶ templates/_kinds.tpl, the choice of kinds in values.yaml
values.yaml ─▶ values.schema.json, the table in README.md
templates ─▶ deploy/manifests, and the parts of deploy/kustomize that differ from them
"""

import argparse
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "deploy" / "local")]

import chart_kinds  # noqa: E402
import chart_values  # noqa: E402
from mofa_local import binaries  # noqa: E402

CHART = ROOT / "charts" / "mofa-advisor"
MANIFESTS = ROOT / "deploy" / "manifests"
OVERLAYS = ROOT / "deploy" / "kustomize" / "overlays"
NAMESPACE = "mofa-system"
HEADER = "# Made by tools/chart.py from charts/mofa-advisor; do not edit.\n"
BEGIN, END = "<!-- values -->\n", "<!-- end of values -->"
FOLDERS = {
    "service-account": MANIFESTS,
    "rbac": MANIFESTS,
    "admission-policy": MANIFESTS,
    "deployment": MANIFESTS / "operator",
    "service": MANIFESTS / "operator",
}
"""Where the documents of a template go. The operator's own folder is apart: tests run it as
a process.
"""
TEAM = "team-a"
"""The namespace in the example of an operator that watches some."""
HELM_ONLY = re.compile(r"^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)


class Document:
    """One rendered object, as text with its comments."""

    def __init__(self, text: str) -> None:
        source, _, rest = text.strip("\n").partition("\n")
        self.template = source.rpartition("/")[2].removesuffix(".yaml")
        self.text = HELM_ONLY.sub("", rest) + "\n"
        body: Any = yaml.load(rest, yaml.CSafeLoader)
        self.kind: str = body["kind"]
        self.name: str = body["metadata"]["name"]
        self.namespace: str = body["metadata"].get("namespace", "")


def render(*options: str) -> list[Document]:
    """What `helm template` makes with these options: names as helm has them, what has the same
    name together.
    """
    # Our helm is built without the version of Kubernetes in it, so it is told one.
    version = ".".join(str(part) for part in binaries.tool("kubectl").module.version[:2])
    command = [binaries.path("helm"), "template", "mofa-advisor", CHART, f"--namespace={NAMESPACE}"]
    done = subprocess.run(
        [*map(str, command), f"--kube-version={version}", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"chart: {done.stderr.strip()}")
    parts = [part for part in re.split(r"^---\n", done.stdout, flags=re.MULTILINE) if part.strip()]
    documents = [Document(part) for part in parts]
    names = list(dict.fromkeys(document.name for document in documents))
    return sorted(
        documents,
        key=lambda document: (names.index(document.name), document.namespace, document.kind),
    )


def joined(documents: list[Document], chosen: Callable[[Document], bool]) -> str:
    """Documents joined to one file."""
    return HEADER + "---\n".join(document.text for document in documents if chosen(document))


def copies() -> dict[Path, str]:
    """What the chart takes from elsewhere: a chart cannot read files beside its folder."""
    rules = (ROOT / "deploy" / "rules" / "prometheusrule.yaml").read_text("utf-8")
    made = {CHART / "files" / "rules.yaml": textwrap.dedent(rules.partition("\nspec:\n")[2])}
    for path in (ROOT / "crds").glob("*.yaml"):
        made[CHART / "files" / "crds" / path.name] = path.read_text("utf-8")
    for path in (ROOT / "deploy" / "grafana").glob("*.json"):
        made[CHART / "files" / "dashboards" / path.name] = path.read_text("utf-8")
    return made


def kinds() -> dict[Path, str]:
    """Files of the chart that list kinds of jobs."""
    values = CHART / "values.yaml"
    return {
        CHART / "templates" / "_kinds.tpl": chart_kinds.template(),
        values: chart_kinds.values(values.read_text("utf-8")),
    }


def described() -> dict[Path, str]:
    """The schema of the values, and the README with their table."""
    values = chart_values.read(CHART / "values.yaml")
    before, rest = (CHART / "README.md").read_text("utf-8").split(BEGIN)
    readme = f"{before}{BEGIN}{chart_values.table(values)}\n{END}{rest.split(END)[1]}"
    return {CHART / "values.schema.json": chart_values.schema(values), CHART / "README.md": readme}


def plain() -> dict[Path, str]:
    """The default release as plain manifests, a file for each template."""
    documents = render()
    return {
        folder / f"{name}.yaml": joined(
            documents, lambda document, name=name: document.template == name
        )
        for name, folder in FOLDERS.items()
    }


def overlays() -> dict[Path, str]:
    """What overlays of kustomize add or change."""
    documents = render(f"--set=watchNamespaces={{{TEAM}}}")
    rest = [
        document
        for document in documents
        if document.template == "rbac" and document.namespace not in {"", NAMESPACE}
    ]
    monitored = render(
        "--set=serviceMonitor.enabled=true", "--api-versions=monitoring.coreos.com/v1"
    )
    return {
        OVERLAYS / "namespaced" / "cluster-role.yaml": joined(
            documents,
            lambda document: (
                document.kind == "ClusterRole" and not document.name.endswith(("-edit", "-view"))
            ),
        ),
        OVERLAYS / "namespaced" / "roles.yaml": joined(rest, lambda _: True),
        OVERLAYS / "prometheus-operator" / "service-monitor.yaml": joined(
            monitored, lambda document: document.kind == "ServiceMonitor"
        ),
    }


def write_steps(steps: tuple[Callable[[], dict[Path, str]], ...]) -> list[Path]:
    """Write what differs, step by step, since later ones read what earlier ones wrote; the
    paths written.
    """
    written = []
    for step in steps:
        for path, text in step().items():
            if not path.exists() or path.read_text("utf-8") != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
                written.append(path)
    return written


STEPS = (copies, kinds, described, plain, overlays)


def stale() -> list[str]:
    """What --check finds: files that are not what they should be, and files that nothing makes."""
    wanted = {path: text for step in STEPS for path, text in step().items()}
    paths = [
        path
        for path, text in wanted.items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    paths += [
        path for path in (CHART / "files").rglob("*") if path.is_file() and path not in wanted
    ]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def main() -> int:
    """Write the files, or say which are not what they should be."""
    parser = argparse.ArgumentParser(description="Make what follows from charts/mofa-advisor.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a file differs"
    )
    if parser.parse_args().check:
        for path in stale():
            print(f"chart: {path} is not what its source says; run `make chart`", file=sys.stderr)
        return 1 if stale() else 0
    for path in write_steps(STEPS):
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())

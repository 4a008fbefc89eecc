"""deploy/kind/up.sh on a control plane of our own, with stand-ins for `kind` and `docker` that
record what they are told.

Everything that the script applies is applied for real. Three things are played: nodes run pods that
kwok starts, the pod of `helm test` ends well, and the operator's container is the operator as a
process, with the arguments of its Deployment.
"""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

from advisor import Advisor, read
from mofa_local import binaries
from mofa_local.cluster import KubectlFailed
from mofa_local.published import MANIFESTS

SCRIPT = Path(__file__).resolve().parents[1] / "deploy" / "kind" / "up.sh"
HOME = "mofa-system"
STAND_IN = """\
#!/usr/bin/env bash
printf '%s\\n' "$(basename "$0") $*" >> "{record}"
case "$(basename "$0") $1 $2" in
  "kind create cluster") cp "{kubeconfig}" "$KUBECONFIG" ;;
esac
"""
HOOK = "helm.sh/hook"
_APART = ("operator", "--prometheus")
"""Arguments that are given already, and those of a Prometheus that is not here."""
_LONGEST = 240.0


class KindSite:
    """What became of a run of the script."""

    def __init__(self, plane, processes, folder, *flags):
        """The script as it is started; `flags` are added to the operator's."""
        self.plane = plane
        self.folder = folder
        self.record = folder / "told"
        self.advisor = None
        """The operator, once the script has made its Deployment."""
        self.arguments = flags
        """With what it starts."""
        self._processes = processes
        self._kubeconfig = folder / "config"
        self._write_stand_ins()

    def run(self):
        """Run it to its end; the operator starts as soon as it has an account."""
        end = time.monotonic() + _LONGEST
        with (self.folder / "up.log").open("w") as log:
            script = subprocess.Popen(["bash", str(SCRIPT)], env=self._environment(), stdout=log, stderr=subprocess.STDOUT)  # fmt: skip
            try:
                while script.poll() is None and time.monotonic() < end:
                    self._start()
                    self._end_hooks()
                    time.sleep(0.3)
            finally:
                script.kill()
                script.wait()
        self.output = (self.folder / "up.log").read_text()
        assert script.returncode == 0, self.output
        return self

    @property
    def commands(self):
        """Commands that kind and docker were given, in order."""
        return self.record.read_text().splitlines()

    def _write_stand_ins(self):
        places = self.folder / "bin"
        places.mkdir(parents=True)
        context = json.loads(self.plane.kubeconfig.read_text())
        context["contexts"][0]["name"] = context["current-context"] = "kind-mofa"
        (self.folder / "kind.config").write_text(json.dumps(context))
        text = STAND_IN.format(record=self.record, kubeconfig=self.folder / "kind.config")
        for name in ("kind", "docker"):
            (places / name).write_text(text)
            (places / name).chmod(0o755)
        shown = binaries.path("kube-state-metrics").parent / MANIFESTS
        states = self.folder / "kube-state-metrics"
        states.mkdir()
        objects = {"apiVersion": "v1", "kind": "List", "items": json.loads(shown.read_text())}
        (states / "all.yaml").write_text(json.dumps(objects))
        (states / "kustomization.yaml").write_text("resources: [all.yaml]\n")

    def _environment(self):
        tools = [str(binaries.path(name).parent) for name in ("kubectl", "helm")]
        return os.environ | {
            "PATH": os.pathsep.join([str(self.folder / "bin"), *tools, os.environ["PATH"]]),
            "KUBECONFIG": str(self._kubeconfig),
            "KUBE_STATE_METRICS": str(self.folder / "kube-state-metrics"),
            "HOME": str(self.folder),
        }

    def _start(self):
        """Start the operator once helm has made its Deployment."""
        made = [] if self.advisor else read(self.plane, "deployments", HOME)
        if made:
            pod = made[0]["spec"]["template"]["spec"]
            arguments = [
                argument
                for argument in pod["containers"][0]["args"]
                if not argument.startswith(_APART)
            ]
            self.arguments = (*arguments, *self.arguments)
            self.account = self.plane.identity(
                "advisor", service_account=f"{HOME}/{pod['serviceAccountName']}"
            )
            self.advisor = Advisor(self.plane, self._processes, "operator", kubeconfig=self.account)
            self.advisor.start(*self.arguments, wait=False)

    def _end_hooks(self):
        """The pods of `helm test` end well."""
        for pod in read(self.plane, "pods", HOME):
            if (
                HOOK in (pod["metadata"].get("annotations") or {})
                and pod["status"].get("phase") == "Running"
            ):
                body = json.dumps({"status": {"phase": "Succeeded"}})
                name = pod["metadata"]["name"]
                with contextlib.suppress(KubectlFailed):  # helm may have taken it away
                    self.plane.kubectl("patch", "pod", name, "-n", HOME, "--subresource=status", "--type=merge", "-p", body)  # fmt: skip

"""The control plane is a real one: our CRDs are served and refuse what they should, identities may
do what they were given.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from advisor import until
from mofa_local import audit
from mofa_local.cluster import KubectlFailed
from mofa_local.control_plane import ControlPlane
from mofa_local.processes import Processes
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
CRDS = sorted((ROOT / "crds").glob("*.yaml"))
READ_JOBS = {"apiGroups": ["mofa.dev"], "resources": ["trainingjobs"], "verbs": ["get", "list"]}


def load(path):
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def changed(path, **changes):
    """An example with some fields set, by dotted path; None removes one."""
    found = load(path)
    found.pop("status", None)
    for where, value in changes.items():
        *parents, last = where.split("__")
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return found


def job(**changes):
    return changed(ROOT / "examples" / "llama3-405b.yaml", **changes)


def profile(**changes):
    return changed(ROOT / "examples" / "h100-east.yaml", **changes)


def gone(pid):
    """Whether a process has ended; one that nobody has waited for yet counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()[:1] in {"Z", ""}


# ------------------------------------------------------------------------------------------------ CRDs


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_the_api_server_accepts_each_crd_and_its_schema_is_structural(cluster, path):
    name = load(path)["metadata"]["name"]
    found = json.loads(cluster.kubectl("get", "crd", name, "-o", "json"))
    conditions = {one["type"]: one for one in found["status"]["conditions"]}
    assert conditions["NamesAccepted"]["status"] == conditions["Established"]["status"] == "True"
    assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_the_api_server_keeps_each_schema_as_we_wrote_it(cluster, path):
    wanted = load(path)
    found = json.loads(cluster.kubectl("get", "crd", wanted["metadata"]["name"], "-o", "json"))
    (ours,), (theirs,) = wanted["spec"]["versions"], found["spec"]["versions"]
    assert theirs["schema"] == ours["schema"]
    assert theirs["subresources"] == ours["subresources"]


@pytest.mark.parametrize("name", ["llama3-405b", "deepseek-v3", "h100-east"])
def test_the_examples_are_valid_to_the_letter(cluster, namespace, name):
    path = ROOT / "examples" / f"{name}.yaml"
    cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", path)


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"spec__cluster__maxNodes": 512}, "give nodes or maxNodes, not both"),
        ({"spec__model": {}}, "give exactly one of preset, architecture and configMapRef"),
        (
            {"spec__model__configMapRef": {"name": "config", "key": "config.json"}},
            "give exactly one of preset, architecture and configMapRef",
        ),
        (
            {"spec__checkpoint": {"minIntervalSeconds": 600, "maxIntervalSeconds": 60}},
            "minIntervalSeconds must not exceed maxIntervalSeconds",
        ),
        ({"spec__slo": {"ettr": "1.01"}}, "give more than 0 and at most 1"),
        ({"spec__slo": {"ettr": "0.0"}}, "give more than 0 and at most 1"),
        ({"spec__training__tokens": "0T"}, "give more than 0"),
        ({"spec__checkpoint": {"maxIntervalSeconds": 0}}, "greater than or equal to 1"),
        ({"spec__checkpoint": {"size": "0 GB"}}, "give more than 0 bytes"),
        ({"spec__constraints": {"memoryHeadroomPercent": 100}}, "less than or equal to 99"),
        ({"spec__constraints": {"tp": {"values": [8, 8]}}}, "Duplicate value"),
        ({"spec__mode": "Sometimes"}, 'Unsupported value: "Sometimes"'),
        ({"spec__mode": True}, "must be of type string"),
        ({"spec__cluster__nodes": 0}, "greater than or equal to 1"),
        ({"spec__cluster__nodes": 2.5}, "must be of type integer"),
        ({"spec__training": None}, "Required value"),
        ({"spec__nonsense": 1}, 'unknown field "spec.nonsense"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_that_cannot_be_right_is_refused_with_the_reason(cluster, namespace, changes, why):
    with pytest.raises(KubectlFailed) as refused:
        cluster.kubectl(
            "create",
            "--validate=strict",
            "-n",
            namespace,
            "-f",
            "-",
            input=json.dumps(job(**changes)),
        )
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"spec__gpusPerNode": 0}, "gpusPerNode"),
        ({"spec__network": {"oversubscription": "0.5"}}, "give 1 or more"),
        ({"spec__failures": {"priorWeight": "0.0"}}, "give more than 0"),
        ({"spec__failures": {"repairSeconds": 0}}, "greater than or equal to 1"),
        ({"spec__network": {"scaleOut": "0.0 Gbit/s"}}, "give more than 0 B/s"),
        ({"spec__host": {"memory": "0 TiB"}}, "give more than 0 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_profile_that_cannot_be_right_is_refused_with_the_reason(cluster, changes, why):
    with pytest.raises(KubectlFailed, match=why):
        cluster.kubectl("create", "-f", "-", input=json.dumps(profile(**changes)))


BAND = ("lower", "target", "upper")


def test_kubectl_get_tjob_prints_our_columns_and_kubectl_wait_waits_for_conditions(
    cluster, namespace
):
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(job()))
    whole, share = dict.fromkeys(BAND, 1_100_000), dict.fromkeys(BAND, "0.9300")
    now = "2026-01-31T09:30:00Z"
    status = {
        "health": "Drifting",
        "inputs": {"nodes": 256},
        "recommendation": {
            "strategy": dict.fromkeys(("tp", "pp"), 8)
            | dict.fromkeys(("cp", "ep", "dp", "vpp", "mbs"), 1)
            | {"text": "tp=8,pp=8"},
            "summary": "tp8 pp8",
            "checkpointIntervalSteps": 10,
            "checkpointIntervalSeconds": 120,
            "predicted": dict.fromkeys(("stepMilliseconds", "tokensPerSecond", "memoryBytes"), whole)
            | {"mfu": share, "ettr": share},
        },
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "LowConfidence", "observedGeneration": 1, "lastTransitionTime": now},
            {"type": "PredictionAccurate", "status": "False", "reason": "Drifting", "lastTransitionTime": now},
        ],
    }  # fmt: skip
    cluster.kubectl(
        "patch", "tjob", "llama3-405b", "-n", namespace, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": status}),
    )  # fmt: skip
    header, row = cluster.kubectl("get", "tjob", "-n", namespace).splitlines()
    assert header.split() == [
        "NAME",
        "NODES",
        "STRATEGY",
        "CKPT-S",
        "TOK/S",
        "OBSERVED",
        "ETTR",
        "READY",
        "REASON",
        "HEALTH",
        "FINISH",
        "AGE",
    ]
    assert row.split()[:9] == ["llama3-405b", "256", "tp8", "pp8", "120", "1100000", "0.9300", "True", "LowConfidence"]  # fmt: skip
    cluster.kubectl(
        "wait", "tjob/llama3-405b", "-n", namespace, "--for=condition=Ready", "--timeout=20s"
    )
    with pytest.raises(KubectlFailed, match="timed out"):
        cluster.kubectl(
            "wait",
            "tjob/llama3-405b",
            "-n",
            namespace,
            "--for=condition=PredictionAccurate",
            "--timeout=1s",
        )


@pytest.mark.parametrize(
    "field, value", [("spec.mode", "Annotate"), ("spec.cluster.profile", "h100-east")]
)
def test_jobs_can_be_selected_by_field(cluster, namespace, field, value):
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(job()))

    def select(wanted):
        return cluster.kubectl(
            "get", "tjob", "-n", namespace, "-o", "name", f"--field-selector={field}={wanted}"
        )

    assert select(value) == "trainingjob.mofa.dev/llama3-405b\n"
    assert select("else") == ""


def test_the_status_is_written_through_its_own_door_only(cluster, namespace):
    spoken = job() | {"status": {"health": "Invented"}}
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(spoken))
    assert (
        cluster.kubectl(
            "get", "tjob", "llama3-405b", "-n", namespace, "-o", "jsonpath={.status.health}"
        )
        == ""
    )


# ------------------------------------------------------------------------------------------ identities


def test_an_account_without_a_role_is_refused(cluster, namespace):
    nobody = cluster.identity("nobody", namespace=namespace)
    with pytest.raises(
        KubectlFailed, match=rf"Forbidden.*serviceaccount:{namespace}:nobody.*cannot list"
    ):
        cluster.kubectl("get", "tjob", "-A", as_=nobody)


def test_an_account_may_do_what_its_role_says_and_no_more(cluster, namespace):
    reader = cluster.identity("reader", [READ_JOBS], namespace=namespace)
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(job()))
    assert "llama3-405b" in cluster.kubectl("get", "tjob", "-A", as_=reader)
    with pytest.raises(KubectlFailed, match="Forbidden"):
        cluster.kubectl("annotate", "tjob", "llama3-405b", "-n", namespace, "a=b", as_=reader)


def test_a_role_of_one_namespace_says_nothing_about_the_others(cluster, namespace):
    reader = cluster.identity("here", [READ_JOBS], namespace=namespace, everywhere=False)
    assert cluster.kubectl("get", "tjob", "-n", namespace, as_=reader) == ""
    with pytest.raises(KubectlFailed, match="Forbidden"):
        cluster.kubectl("get", "tjob", "-n", "default", as_=reader)


def test_a_user_is_who_the_certificate_says(cluster):
    alice = cluster.user("alice", ["engineers"])
    said = json.loads(cluster.kubectl("auth", "whoami", "-o", "json", as_=alice))["status"][
        "userInfo"
    ]
    assert (said["username"], said["groups"]) == ("alice", ["engineers", "system:authenticated"])
    with pytest.raises(KubectlFailed, match="Forbidden"):
        cluster.kubectl("get", "nodes", as_=alice)


def test_kubeconfigs_are_for_their_owner_only(cluster, namespace):
    for path in (cluster.kubeconfig, cluster.identity("private", namespace=namespace)):
        assert path.stat().st_mode & 0o777 == 0o600


# ----------------------------------------------------------------------------- what the API server does


def test_server_side_apply_owns_the_annotations_it_sets_and_drops_those_it_no_longer_sets(
    cluster, namespace
):
    cluster.kubectl(
        "create",
        "-n",
        namespace,
        "-f",
        "-",
        input=json.dumps(job(metadata__annotations={"mine": "1"})),
    )

    def advise(**ours):
        annotations = {f"advisor.mofa.dev/{key}": value for key, value in ours.items()}
        body = job(metadata__annotations=annotations)
        del body["spec"]
        jobs = cluster.admin.resources.get(api_version="mofa.dev/v1alpha1", kind="TrainingJob")
        found = jobs.server_side_apply(
            body=body, namespace=namespace, field_manager="mofa-advisor", force_conflicts=True
        )
        return dict(found.metadata.annotations.to_dict())

    assert advise(strategy="tp=8", status="Recommended") == {
        "mine": "1", "advisor.mofa.dev/strategy": "tp=8", "advisor.mofa.dev/status": "Recommended",
    }  # fmt: skip
    assert advise(status="InvalidInput") == {"mine": "1", "advisor.mofa.dev/status": "InvalidInput"}


def test_pod_security_is_in_force(cluster, namespace):
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root", "namespace": namespace},
        "spec": {"containers": [{"name": "root", "image": "scratch"}]},
    }  # fmt: skip
    with pytest.raises(KubectlFailed, match="violates PodSecurity"):
        cluster.kubectl("create", "-f", "-", input=json.dumps(pod))


def test_the_audit_log_counts_each_write_and_who_made_it(cluster, namespace):
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(job()))
    for mode in ("Disabled", "Annotate"):
        cluster.kubectl(
            "patch",
            "tjob",
            "llama3-405b",
            "-n",
            namespace,
            "--type=merge",
            "-p",
            json.dumps({"spec": {"mode": mode}}),
        )
    cluster.kubectl(
        "patch",
        "tjob",
        "llama3-405b",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        "{}",
        "--dry-run=server",
    )
    with pytest.raises(KubectlFailed):
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(job()))
    cluster.kubectl("get", "tjob", "-n", namespace)

    def seen(accepted):
        return audit.writes(
            cluster.audit(), resource="trainingjobs", namespace=namespace, accepted=accepted
        )

    until(lambda: len(seen(True)) == 3 and len(seen(False)) == 1)
    assert audit.per_user(seen(True)) == {"admin": 3}
    patches = [event for event in seen(True) if event["verb"] == "patch"]
    assert audit.per_object(patches) == {f"trainingjobs/{namespace}/llama3-405b": 2}
    assert patches[0]["requestObject"] == {"spec": {"mode": "Disabled"}}


# ------------------------------------------------------------------------------------ outages, the end


def test_a_restart_keeps_every_object_although_a_watch_is_open(cluster, namespace):
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(job()))
    before = cluster.kubectl("get", "tjob", "llama3-405b", "-n", namespace, "-o", "json")
    jobs = cluster.admin.resources.get(api_version="mofa.dev/v1alpha1", kind="TrainingJob")
    with contextlib.closing(jobs.watch(namespace=namespace, timeout=600)) as watched:
        assert next(watched)["object"].metadata.name == "llama3-405b"
        cluster.restart_api_server()
    assert cluster.kubectl("get", "tjob", "llama3-405b", "-n", namespace, "-o", "json") == before


def test_a_killed_api_server_comes_back_on_the_same_port_with_the_same_identities(
    cluster, namespace
):
    reader = cluster.identity("reader", [READ_JOBS], namespace=namespace)
    cluster.kill_api_server()
    with pytest.raises(KubectlFailed, match="refused"):
        cluster.kubectl("get", "--raw", "/readyz")
    cluster.start_api_server()
    assert cluster.kubectl("get", "tjob", "-n", namespace, as_=reader) == ""


@pytest.mark.soak
def test_an_outage_of_etcd_loses_nothing(cluster, namespace):
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(job()))
    where = f"/apis/mofa.dev/v1alpha1/namespaces/{namespace}/trainingjobs/llama3-405b"
    before = json.loads(cluster.kubectl("get", "--raw", where))
    cluster.stop_etcd()
    with pytest.raises(KubectlFailed):
        cluster.kubectl("get", "--raw", where, "--request-timeout=2s")
    cluster.start_etcd()

    def answered():
        try:
            return cluster.kubectl("get", "--raw", where, "--request-timeout=5s")
        except KubectlFailed:
            return ""

    assert json.loads(until(answered))["spec"] == before["spec"]


def test_nothing_is_left_running_after_a_control_plane(binaries, tmp_path):
    with Processes(tmp_path / "run") as processes:
        with ControlPlane(tmp_path / "plane", processes):
            pids = [processes[name].pid for name in processes.names]
            assert len(pids) == 2
            assert not any(gone(pid) for pid in pids)
        assert all(gone(pid) for pid in pids)
    assert list((tmp_path / "run").glob("*.pid")) == []


@pytest.mark.soak
def test_nothing_is_left_running_when_the_owner_is_killed(binaries, tmp_path):
    owner = f"""
import pathlib, sys, time
sys.path.insert(0, {str(ROOT / "deploy" / "local")!r})
from mofa_local.control_plane import ControlPlane
from mofa_local.processes import Processes
folder = pathlib.Path({str(tmp_path)!r})
processes = Processes(folder / "run")
ControlPlane(folder / "plane", processes).start()
print(*(processes[name].pid for name in processes.names), flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True
    ) as child:
        pids = [int(pid) for pid in child.stdout.readline().split()]
        assert len(pids) == 2
        child.send_signal(signal.SIGKILL)
    until(lambda: all(gone(pid) for pid in pids))


@pytest.mark.parametrize(
    "words",
    [
        "nodes",
        "crd",
        "namespaces default",
        "sa mofa-advisor -n mofa-system",
        "trainingjobs.mofa.dev -A",
        "roles -A",
    ],
)
def test_what_is_answered_in_the_place_of_kubectl_is_what_it_prints(cluster, words):
    asked = ["get", *words.split(), "-o", "json"]
    printed = json.loads(
        cluster.kubectl(*asked, as_=cluster.kubeconfig)
    )  # with a kubeconfig it is kubectl itself
    if printed["kind"] == "List":
        del printed["metadata"]
    assert cluster._answer_to_get(asked) is not None
    assert json.loads(cluster.kubectl(*asked)) == printed

"""The whole story with real containers: installed, advised, started, seen, killed twice, counted,
recovered from, removed.

Every claim is read from outside: kubectl, /proc, the kernel's cgroups, Prometheus, files. `make
e2e` runs it, and writes what it saw to docs/real-node.md where MOFA_E2E_PAGE names a folder
of documents.
"""

import json
import os
import re
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from mofa_local.neighbourhood import missing as neighbours_missing
from mofa_local.processes import Processes, crowded
from mofa_local.real.machine import missing
from real_page import written
from real_site import GPUS, HOME, RELEASE, TOY, RealSite, until

from mofa_model.annotations import PREFIX

BESIDE = ("kube-state-metrics", "jobset")
READY = 5.0
"""Longest time from the start of the operator's container to Ready. [s]"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if why := missing() or neighbours_missing(*BESIDE):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("real")
    with Processes(folder / "run") as processes:
        made = RealSite(folder, processes)
        try:
            yield made.start(*BESIDE)
        finally:
            made.stop()


@pytest.mark.soak
def test_the_whole_story_on_a_real_node(site):
    site.load_torch()
    installed(site)
    advised_and_started(site)
    seen_side_by_side(site)
    a_pod_is_killed(site)
    the_kubelet_is_killed(site)
    below_its_limits(site)
    removed(site)
    if folder := os.environ.get("MOFA_E2E_PAGE"):
        written(site, Path(folder))


def installed(site):
    site.install("operator.page=true", "operator.quietSeconds=2", "prometheus.intervalSeconds=5")
    pod = until(lambda: ready(site.operator()), what="the operator is Ready")
    begun = datetime.fromisoformat(
        pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
    )
    became = datetime.fromisoformat(condition(pod, "Ready")["lastTransitionTime"])
    took = (became - begun).total_seconds()
    context = pod["spec"]["containers"][0]["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    (process, command), *_ = site.commands("operator")
    uids = re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert uids[1] == "65532", "the chart's user, as the kernel has it"
    site.seen.note(
        f"helm has installed the chart; the operator's pod is Ready {took:.0f} s after its container began",
        f"$ cat /proc/{process}/cmdline\n{' '.join(command)}",
    )
    busy = crowded()
    assert took <= READY * busy, "on a machine that is busy with others, as much longer as that"
    watched = until(lambda: watches(site), what="every kind that is there is watched")
    assert {"nodes", "clusterprofiles.mofa.dev", "jobsets.jobset.x-k8s.io"} <= watched
    told = [
        line
        for line in site.helm("test", RELEASE).splitlines()
        if line.startswith(("TEST SUITE", "Phase"))
    ]
    assert any("Succeeded" in line for line in told), told
    site.seen.note("helm test ends well", "\n".join(told))


def advised_and_started(site):
    site.kubectl("apply", "-k", TOY)
    site.scrape()
    pods = until(lambda: running(site, 2), what="two pods run", patience=90)
    job = site.read("tjob", "toy")
    advice = json.loads(job["metadata"]["annotations"][f"{PREFIX}recommendation"])
    lines = until(lambda: both(site), what="two trainers run")
    for _, line in lines:
        assert line[line.index("/program/train.py") + 1 :] == advice["launch"], (
            "the advised arguments, word by word"
        )
    template = site.read("jobset", "toy")["spec"]["replicatedJobs"][0]["template"]["spec"][
        "template"
    ]
    assert template["metadata"]["annotations"][f"{PREFIX}launch-args"].split() == advice["launch"]
    pid, line = lines[0]
    site.seen.note(
        f"a JobSet that waited at our gate was let go with its advice: two pods run {made(job, pods):.0f} s after kubectl apply",
        f"$ kubectl get tjob,jobset,pods\n{site.kubectl('get', 'tjob,jobset,pods', '-o', 'wide')}",
        f"$ cat /proc/{pid}/cmdline\n{' '.join(line)}",
    )
    events = site.kubectl(
        "get", "events", "--field-selector=reason=AppliedBeforeLaunch", "-o", "name"
    )
    assert events.strip()


def seen_side_by_side(site):
    until(lambda: figure(site, "mofa_train_step") > 20, what="Prometheus has steps of the sidecar")
    until(lambda: figure(site, "mofa_train_checkpoint_total") >= 1, what="it has seen a checkpoint")
    status = until(lambda: observed(site), what="the status has an observation")
    predicted = figure(site, 'mofa_job_predicted_tokens_per_second{bound="target"}')
    tokens = until(
        lambda: figure(site, "mofa_job_observed_tokens_per_second"), what="the metric is there"
    )
    own = figure(site, "mofa_train_tokens_per_second")
    assert 0.2 < float(status["tokensPerSecond"]) / own < 5, "of the order of what the trainer says"
    shown = page(site)
    assert "Predicted and observed" in shown
    assert "Interruptions since" in shown
    assert not observed(site).get("interruptions"), "nothing has happened yet"
    table = site.kubectl("get", "tjob")
    site.seen.note(
        "predicted and observed stand side by side in status, metrics and page",
        f"$ kubectl get tjob\n{table}",
        f"mofa_job_predicted_tokens_per_second  {predicted:.0f}  (of two H100s, which are not there)\n"
        f"mofa_job_observed_tokens_per_second   {tokens:.0f}  (of two processes on this machine's cores)",
        condition(site.read("tjob", "toy"), "PredictionAccurate")["message"],
    )


def a_pod_is_killed(site):
    before = interruptions(site)
    step = figure(site, "mofa_train_step")
    victim = next(
        one["metadata"]["name"] for one in pods_of(site) if "-0-1-" in one["metadata"]["name"]
    )
    site.mark("a pod is killed")
    begun = time.time()
    site.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    until(lambda: interruptions(site) > before, what="the kill is counted")
    resumed, again = until(lambda: trains_on(site), what="it trains on")
    until(lambda: figure(site, "mofa_train_step") >= again, what="Prometheus has a step after it")
    back = time.time() - begun
    assert site.read("jobset", "toy")["status"]["restarts"] == 1
    assert resumed > 0, "it went on from a checkpoint"
    lost = figure(site, 'mofa_job_lost_seconds_total{cause="failure"}')
    assert lost > 0
    assert interruptions(site) == before + 1, "one kill is one interruption"
    top, low = until(
        lambda: fall(site, time.time() - begun + 10),
        what="ETTR has fallen while nothing was trained",
    )
    after = figure(site, "mofa_job_observed_ettr_ratio")
    site.seen.note(
        f"a pod was killed after step {step:.0f}: counted, and a step after it seen {back:.0f} s later; it went on from the checkpoint of step {resumed}",
        f"$ kubectl get tjob toy -o jsonpath='{{.status.observed}}'\n{json.dumps(observed(site))}",
        f"mofa_job_interruptions_total 0 -> 1, mofa_job_lost_seconds_total {lost:.0f}, observed ETTR {top:.3f} -> {low:.3f}, then {after:.3f}",
    )


def the_kubelet_is_killed(site):
    before, failures = interruptions(site), site.read("cprof", "real")["status"]
    site.mark("the kubelet is killed")
    begun = time.time()
    site.node.kill_kubelet()
    until(
        lambda: condition(site.read("nodes", site.node.name), "Ready")["status"] != "True",
        what="the node is not ready",
    )
    silent = time.time() - begun
    assert both(site), "what runs on a node outlives its kubelet"
    until(
        lambda: site.read("cprof", "real")["status"]["nodes"]["ready"] == 0,
        what="the pool has lost its node",
    )
    until(
        lambda: any("deletionTimestamp" in one["metadata"] for one in pods_of(site)),
        what="its pods are to go",
    )
    site.node.start_kubelet()
    site.mark("it is back")
    until(lambda: interruptions(site) > before, what="the loss is counted")
    resumed, again = until(lambda: trains_on(site), what="it trains again")
    until(lambda: figure(site, "mofa_train_step") >= again, what="Prometheus has a step after it")
    back = time.time() - begun
    status = until(lambda: counted(site, failures), what="the profile has counted it")
    site.seen.note(
        f"the kubelet was killed: the node was not ready after {silent:.0f} s; its pods had to go; with the kubelet back the job went on from step {resumed}, {back:.0f} s after the kill",
        f"$ kubectl get tjob,cprof\n{site.kubectl('get', 'tjob,cprof')}",
        f"status.failures of the profile: {json.dumps([{key: row[key] for key in ('name', 'failures')} for row in status['failures']])}",
        f"status.observed of the job: {json.dumps(observed(site))}",
    )


def below_its_limits(site):
    site.page = page(site)
    pod = site.operator()
    found = site.cgroup(pod, "operator")
    peak = int(found.get("memory.max_usage_in_bytes") or found["memory.peak"])
    limit = int(found.get("memory.limit_in_bytes") or found["memory.max"])
    assert limit == 2**30, "the chart's limit"
    assert peak < limit
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    seconds = int(found["cpuacct.usage"]) / 1e9 if "cpuacct.usage" in found else float("nan")
    site.seen.note(
        f"the operator's container took {peak / 2**20:.0f} MiB of {limit / 2**20:.0f} MiB at most, and {seconds:.0f} s of a core",
        json.dumps(found),
    )
    for one in pods_of(site):
        side = site.cgroup(one, "observe")
        held = int(side.get("memory.max_usage_in_bytes") or side["memory.peak"])
        assert held < int(side.get("memory.limit_in_bytes") or side["memory.max"])
        site.seen.note(
            f"`mofa observe` in {one['metadata']['name']} took {held / 2**20:.0f} MiB of 128 MiB at most"
        )


def removed(site):
    site.helm("uninstall", RELEASE, "--wait")
    until(lambda: not site.operator(), what="its pod is gone")
    kinds = "all,sa,cm,secret,role,rolebinding,clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,lease,pdb,networkpolicy"
    left = site.kubectl(
        "get", kinds, "-A", "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name"
    )
    assert not left.strip(), left
    assert not site.commands("operator"), "no process of it runs"
    assert running(site, 2), "jobs run on"
    site.kubectl("delete", "-k", TOY, "--wait=true")
    until(lambda: not pods_of(site), what="the job's pods are gone")
    crds = [
        f"{name}.mofa.dev"
        for name in ("trainingjobs", "clusterprofiles", "advisorpolicies", "failureledgers")
    ]
    site.kubectl("delete", "crd", *crds)
    site.kubectl("delete", "namespace", HOME)
    everywhere = site.kubectl("get", "crd,clusterrole,validatingadmissionpolicy", "-o", "name")
    assert "mofa" not in everywhere, everywhere
    site.seen.note("helm uninstall, and kubectl delete of the definitions, leave nothing")


def page(site):
    """The operator's page of the job, from its pod."""
    return site.node.get(
        f"http://{site.operator()['status']['podIP']}:8080/jobs/trainingjobs.mofa.dev/default/toy"
    )


def condition(body, name):
    return next(one for one in body["status"].get("conditions", ()) if one["type"] == name)


def ready(pod):
    return pod if pod and condition(pod, "Ready")["status"] == "True" else None


def watches(site):
    text = site.node.get(f"http://{site.operator()['status']['podIP']}:8080/metrics")
    found = dict(re.findall(r'^mofa_advisor_watch_up\{kind="([^"]+)"\} (\S+)$', text, re.MULTILINE))
    return set(found) if found and set(found.values()) == {"1.0"} else None


def pods_of(site):
    return json.loads(site.kubectl("get", "pods", "-n", "default", "-o", "json"))["items"]


def running(site, count):
    found = [
        one
        for one in pods_of(site)
        if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
    ]
    return found if len(found) == count else None


def first_of(site):
    return next(
        one["metadata"]["name"]
        for one in running(site, 2) or ()
        if "-0-0-" in one["metadata"]["name"]
    )


def trains_on(site):
    """The checkpoint from which it went on, and a step that it has finished since."""
    log = site.kubectl("logs", first_of(site), "-c", "trainer")
    loaded = re.search(r"successfully loaded checkpoint .* at iteration (\d+)", log)
    steps = re.findall(r"\] iteration +(\d+)/", log)
    return (int(loaded[1]), int(steps[-1])) if loaded and steps else None


def both(site):
    found = [one for one in site.commands("/program/train.py") if one[1][0].endswith("python3")]
    return found if len(found) == GPUS else None


def made(job, pods):
    at = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    begun = [
        datetime.fromisoformat(one["state"]["running"]["startedAt"])
        for pod in pods
        for one in pod["status"]["containerStatuses"]
    ]
    return (max(begun) - at).total_seconds()


def figure(site, query):
    """One number of Prometheus; 0 where there is none. A sum, where there are several."""
    found = site.prometheus.ask(f"sum({query})")
    return found[0][1] if found else 0.0


def observed(site):
    return site.read("tjob", "toy")["status"].get("observed")


def interruptions(site):
    return figure(site, "mofa_job_interruptions_total")


def fall(site, seconds):
    """The ETTR before and after it fell most within the last so many seconds; None where it
    did not.
    """
    ratios = [ratio for _, ratio in site.over_time("max(mofa_job_observed_ettr_ratio)", seconds)]
    most = max(pairwise(ratios), key=lambda pair: pair[0] - pair[1], default=(0.0, 0.0))
    return most if most[0] > most[1] else None


def counted(site, before):
    """The status of the profile, once it counts more failures than before."""
    status = site.read("cprof", "real")["status"]
    total = [sum(row["failures"] for row in one.get("failures") or ()) for one in (before, status)]
    return status if total[1] > total[0] else None


def test_the_toy_trains_what_its_manifests_say():
    """The shape in the TrainingJob is that of train.py, so that what is predicted is what runs."""
    from ruamel.yaml import YAML

    spec = YAML(typ="safe").load(TOY / "trainingjob.yaml")["spec"]
    shape = spec["model"]["architecture"]
    text = (TOY / "train.py").read_text("utf-8")
    flags = {
        "num-layers": shape["layers"],
        "hidden-size": shape["hiddenSize"],
        "num-attention-heads": shape["heads"],
        "ffn-hidden-size": shape["ffnSize"],
        "vocab-size": shape["vocabularySize"],
    }
    for flag, size in flags.items():
        assert f'("{flag}", {size})' in text, flag
    jobset = (TOY / "jobset.yaml").read_text("utf-8")
    assert f"--sequence={spec['training']['sequenceLength']}" in jobset

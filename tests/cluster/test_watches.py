"""Watches and the queue behind them, on the real thing: rights that come late, and metrics
that move.
"""

import contextlib
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

from advisor import Advisor, ours, until
from faults.proxy import Proxy, behind
from foreign import install
from mofa_local.cluster import KubectlFailed
from operator_objects import job_set, small_job
from pools import pool
from ruamel.yaml import YAML

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET, KINDS
from mofa_operator.keys import ADVISOR_POLICY, NAMESPACE, NODE, OURS

MANIFESTS = Path(__file__).parents[2] / "deploy" / "manifests"
EVERY = {kind.resource for kind in (NODE, NAMESPACE, *KINDS, *OURS)}
"""What is watched where all kinds are there."""
MANY, SHOWN = 20, 15
"""Jobs that come at once, and those of them that have series of their own."""


def sample(advisor, name):
    return float(re.search(rf"^{name} (\S+)$", advisor.metrics(), re.MULTILINE)[1])


def rules(without=()):
    """What the operator's role allows, without the right to watch some kinds."""
    documents = YAML(typ="safe").load_all((MANIFESTS / "rbac.yaml").read_text("utf-8"))
    (role,) = (
        one
        for one in documents
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "mofa-advisor")
    )
    for rule in json.loads(json.dumps(role["rules"])):
        for resource in rule["resources"]:
            hidden = any(
                (kind.plural, [kind.group]) == (resource, rule["apiGroups"]) for kind in without
            )
            verbs = [verb for verb in rule["verbs"] if not hidden or verb != "watch"]
            yield {"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": verbs}


def test_kinds_that_may_not_be_watched_end_no_other_watch_and_are_watched_once_they_may_be(
    cluster, processes, namespace
):
    install(cluster)
    blind = (JOB_SET, ADVISOR_POLICY)  # one that we watch ourselves, one that kopf does
    kubeconfig = cluster.identity("blind", list(rules(blind)), namespace="mofa-system")
    advisor = Advisor(cluster, processes, "blind", kubeconfig=kubeconfig)
    advisor.start("--resync=2")
    hidden = {kind.resource for kind in blind}
    try:
        until(lambda: advisor.watched == EVERY - hidden, what="all others are watched")
        before = len(cluster.audit())
        time.sleep(3.5)
        assert advisor.watched == EVERY - hidden
        asked = [
            one for one in cluster.audit()[before:] if one["user"]["username"].endswith(":blind")
        ]
        assert {one["objectRef"]["resource"] for one in asked if one["verb"] == "watch"} <= {
            kind.plural for kind in blind
        }
        cluster.kubectl(
            "create", "-f", "-", input=json.dumps(job_set("unseen", namespace=namespace))
        )
        missed = "mofa_advisor_watch_resync_differences_total"
        until(lambda: sample(advisor, missed) >= 1, 10.0, "a full list shows what no watch did")
        cluster.identity("blind", list(rules()), namespace="mofa-system")
        until(lambda: advisor.watched == EVERY, 10.0, "all are watched")
    finally:
        advisor.stop()


def test_an_operator_whose_user_has_no_name_as_in_its_image_watches_every_kind(cluster, processes):
    """The image runs as user 65532, whom no passwd file knows: kopf asked for the name, and none of
    its watches ever stood.
    """
    install(cluster)
    nameless = "import pwd; pwd.getpwuid = lambda uid: {}[uid]; from mofa_model.cli import main; raise SystemExit(main())"
    without = ("env", *(f"--unset={name}" for name in ("LOGNAME", "USER", "LNAME", "USERNAME")))
    advisor = Advisor(
        cluster, processes, "nameless", program=[*without, sys.executable, "-c", nameless]
    )
    advisor.start("--resync=600")
    try:
        until(lambda: advisor.watched == EVERY, 20.0, "all are watched")
    finally:
        advisor.stop()
    assert "fault of this program" not in advisor.log


def allow(cluster, account, without=()):
    """What an operator may do from now on, and the API server knows it."""
    cluster.identity("taken", list(rules(without)), namespace="mofa-system")
    asked = ("auth", "can-i", "watch", JOB_SET.resource, "--all-namespaces", "--quiet")

    def may():
        with contextlib.suppress(KubectlFailed):
            return cluster.kubectl(*asked, as_=account) == ""

    until(lambda: bool(may()) == (JOB_SET not in without), 10.0, "the API server knows it")


def test_a_right_that_is_taken_ends_its_own_watch_alone_and_jobs_are_advised_once_it_is_given_back(
    cluster, processes, namespace
):
    install(cluster)
    account = cluster.identity("taken", list(rules()), namespace="mofa-system")
    with Proxy(cluster) as proxy:
        advisor = Advisor(cluster, processes, "taken", kubeconfig=behind(account, proxy.url))
        advisor.start(f"--namespace={namespace}", "--resync=600")
        try:
            until(lambda: advisor.watched == EVERY, what="all are watched")
            allow(cluster, account, without=(JOB_SET,))
            proxy.cut()  # a watch that stands is not asked for its right again
            until(
                lambda: advisor.watched == EVERY - {JOB_SET.resource},
                20.0,
                "its watch alone is down",
            )
            allow(cluster, account)
            until(lambda: advisor.watched == EVERY, 10.0, "it is watched again")
            body = job_set("seen", namespace=namespace, annotations={f"{PREFIX}mode": "Annotate"})
            cluster.kubectl("create", "-f", "-", input=json.dumps(body))
            asked = ("get", "jobset", "seen", "-n", namespace, "-o", "json")
            until(
                lambda: "status" in ours(json.loads(cluster.kubectl(*asked))),
                20.0,
                "it is answered",
            )
            assert sample(advisor, "mofa_advisor_watch_resync_differences_total") == 0
        finally:
            advisor.stop()


def test_depth_and_age_of_the_queue_are_measured(cluster, processes, namespace):
    advisor = Advisor(cluster, processes, "queue")
    with pool(cluster) as profile:
        advisor.start(
            f"--namespace={namespace}", "--settle=0.2", "--concurrency=1", f"--most-jobs={SHOWN}"
        )
        try:
            until(lambda: sample(advisor, "mofa_advisor_queue_depth") == 0)
            (worker,) = advisor.workers
            os.kill(worker, signal.SIGSTOP)  # the only hand waits for its answer
            made = [small_job(namespace, f"job-{number}", profile) for number in range(MANY)]
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
            operator = processes[advisor.name].pid
            os.kill(operator, signal.SIGSTOP)  # so that all of them come at once
            cluster.kubectl("create", "-f", "-", input=text)
            os.kill(operator, signal.SIGCONT)
            until(
                lambda: sample(advisor, "mofa_advisor_queue_depth") == MANY - 1,
                5.0,
                "what was read is counted",
            )
            time.sleep(2.0)
            assert sample(advisor, "mofa_advisor_queue_oldest_age_seconds") > 2
            os.kill(worker, signal.SIGCONT)
            until(lambda: sample(advisor, "mofa_advisor_queue_depth") == 0)
            assert sample(advisor, "mofa_advisor_queue_oldest_age_seconds") == 0
            assert sample(advisor, "mofa_advisor_series_dropped_total") == MANY - SHOWN
            unseen = r'mofa_advisor_jobs_without_series\{training_kind="TrainingJob"\}'
            assert sample(advisor, unseen) == MANY - SHOWN
        finally:
            advisor.stop()

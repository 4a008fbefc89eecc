"""The store tells exactly whose decision may change, and is silent otherwise."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_objects import (
    H100,
    NOW,
    PRODUCT,
    counted,
    job_set,
    key_of,
    node,
    policy,
    profile,
    ref,
    training_job,
)

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET
from mofa_model.spec.evidence import FailureEvidence
from mofa_operator.keys import (
    ADVISOR_POLICY,
    CLUSTER_PROFILE,
    CONFIG_MAP,
    NAMESPACE,
    NODE,
    TRAINING_JOB,
    Key,
)
from mofa_operator.observe.cluster import relations
from mofa_operator.observe.cluster.questions import question_bytes
from mofa_operator.observe.cluster.store import Store
from mofa_operator.snapshot import History, Named, NoHistory, Running

EAST = Key(CLUSTER_PROFILE, "", "east")
JOB = Key(TRAINING_JOB, "ns", "a")
SET = Key(JOB_SET, "ns", "js")


def changed(body, version, *path, value=None):
    """A body with another resource version and one other value."""
    body = copy.deepcopy(body)
    body["metadata"]["resourceVersion"] = version
    place = body
    for step in path[:-1]:
        place = place.setdefault(step, {})
    if path:
        place[path[-1]] = value
    return body


@pytest.fixture
def store():
    """A profile and a job that names it."""
    made = Store()
    made.put(CLUSTER_PROFILE, profile())
    made.put(TRAINING_JOB, training_job())
    return made


class TestSilence:
    def test_the_same_object_again_is_no_news(self, store):
        body = training_job("b")
        assert store.put(TRAINING_JOB, body) == {Key(TRAINING_JOB, "ns", "b")}
        assert store.put(TRAINING_JOB, body) == frozenset()

    @pytest.mark.parametrize(
        "path, value",
        [
            (("metadata", "managedFields"), [{"manager": "kubectl"}]),
            (("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"), "{}"),
            (("metadata", "annotations", "argocd.argoproj.io/sync-wave"), "1"),
            (("metadata", "labels"), {"team": "x"}),
            (("metadata", "finalizers"), ["foreign"]),
        ],
    )
    def test_what_no_decision_depends_on_is_no_news(self, store, path, value):
        assert (
            store.put(TRAINING_JOB, changed(store.body(JOB), "2", *path, value=value))
            == frozenset()
        )

    def test_the_status_of_a_foreign_kind_is_no_news(self, store):
        body = job_set()
        store.put(JOB_SET, body)
        assert store.put(JOB_SET, changed(body, "2", "status", "restarts", value=3)) == frozenset()
        assert store.body(SET)["status"] == {"restarts": 3}

    def test_the_echo_of_our_own_write_is_no_news_and_older_events_do_not_undo_it(self, store):
        ours = changed(store.body(JOB), "4", "status", "inputsHash", value="h")
        between = changed(
            store.body(JOB), "3", "metadata", "annotations", value={PREFIX + "status": "x"}
        )
        store.wrote(JOB, between)
        store.wrote(JOB, ours)
        assert store.put(TRAINING_JOB, between) == frozenset()
        assert store.body(JOB)["status"]["inputsHash"] == "h"
        assert store.put(TRAINING_JOB, ours) == frozenset()

    def test_an_edit_that_came_with_the_answer_to_our_write_is_told_with_its_echo(self, store):
        both = changed(store.body(JOB), "4", "spec", "objective", value="Cost")
        store.wrote(JOB, both)
        assert store.put(TRAINING_JOB, changed(both, "3")) == frozenset()
        assert store.put(TRAINING_JOB, both) == {JOB}

    def test_versions_that_went_back_are_believed_in_the_end(self, store):
        """After a restore of etcd, versions are lower than those of our last writes."""
        store.wrote(JOB, changed(store.body(JOB), "900", "status", "inputsHash", value="h"))
        restored = [
            changed(training_job(), str(n), "spec", "objective", value="Cost")
            for n in range(20, 40)
        ]
        assert any(JOB in store.put(TRAINING_JOB, body) for body in restored)

    def test_heartbeats_are_silent(self, store):
        store.put(NODE, node("n"))
        beat = node("n")
        beat["status"]["conditions"][1]["lastHeartbeatTime"] = "later"
        beat["metadata"]["annotations"] = {"volumes.kubernetes.io/controller-managed": "true"}
        assert store.put(NODE, beat) == frozenset()


class TestWhoIsConcerned:
    def test_a_tampered_status_concerns_the_job(self, store):
        body = changed(store.body(JOB), "2", "status", "inputsHash", value="mine")
        assert store.put(TRAINING_JOB, body) == {JOB}

    def test_our_annotations_that_somebody_removes_concern_the_job(self, store):
        body = changed(
            store.body(JOB),
            "2",
            "metadata",
            "annotations",
            value={PREFIX + "status": "Recommended"},
        )
        store.wrote(JOB, body)
        store.put(TRAINING_JOB, body)
        assert store.put(TRAINING_JOB, changed(body, "3", "metadata", "annotations", value={})) == {
            JOB
        }

    def test_a_node_of_two_profiles_concerns_both_and_so_does_the_end_of_one(self):
        store, west = Store(), Key(CLUSTER_PROFILE, "", "west")
        store.put(NODE, node("n1", rack="a"))
        store.put(NODE, node("n2", rack="b"))
        assert store.put(CLUSTER_PROFILE, profile()) == {EAST}
        narrow = profile("west", nodeSelector={"rack": "a"})
        assert store.put(CLUSTER_PROFILE, narrow) == {EAST, west}
        assert store.snapshot(EAST, 0.0).shared == {"west": ("n1",)}
        assert store.snapshot(west, 0.0).shared == {"east": ("n1",)}
        assert store.put(NODE, node("n2", rack="a")) == {EAST, west}
        assert store.snapshot(EAST, 0.0).shared == {"west": ("n1", "n2")}
        assert store.put(
            CLUSTER_PROFILE, changed(narrow, "2", "metadata", "generation", value=2)
        ) == {west}
        assert store.drop(CLUSTER_PROFILE, "", "west") == {EAST, west}
        assert store.snapshot(EAST, 0.0).shared == {}

    def test_a_profile_concerns_the_jobs_that_name_it_also_before_it_exists(self):
        store = Store()
        store.put(TRAINING_JOB, training_job("a"))
        store.put(TRAINING_JOB, training_job("b", cluster={"profile": "west", "nodes": 1}))
        assert store.put(CLUSTER_PROFILE, profile()) == {EAST, JOB}
        assert store.drop(CLUSTER_PROFILE, "", "east") == {EAST, JOB}

    @pytest.mark.parametrize(
        "path, value, told",
        [
            (("spec", "gpu"), "h200", {EAST, JOB}),
            (("status", "failures"), counted(), {EAST, JOB}),
            (("status", "nodes"), {"total": 4, "ready": 3}, {EAST, JOB}),
            (("status", "calibration"), {"stepTimeRatio": "1.1", "jobs": 2}, {EAST, JOB}),
            (("status", "nodes"), {"total": 9, "ready": 4}, {EAST}),
            (("status", "total"), {"assumed": "5"}, {EAST}),
        ],
    )
    def test_of_a_profiles_status_jobs_hear_what_answers_depend_on(self, store, path, value, told):
        assert (
            store.put(CLUSTER_PROFILE, changed(store.body(EAST), "2", *path, value=value)) == told
        )

    def test_jobs_hear_of_the_condition_that_they_mirror(self, store):
        one = {
            "type": "HistoryComplete",
            "status": "False",
            "reason": "HistoryUnavailable",
            "message": "no",
        }
        body = changed(store.body(EAST), "2", "status", "conditions", value=[one])
        assert store.put(CLUSTER_PROFILE, body) == {EAST, JOB}
        again = [one | {"observedGeneration": 2, "lastTransitionTime": "2026-01-31T09:30:00Z"}]
        body = changed(body, "3", "status", "conditions", value=again)
        assert store.put(CLUSTER_PROFILE, body) == {EAST}

    def test_history_that_we_wrote_ourselves_reaches_the_jobs_with_its_echo(self, store):
        body = changed(store.body(EAST), "2", "status", "failures", value=counted())
        store.wrote(EAST, body)
        assert store.put(CLUSTER_PROFILE, body) == {JOB}

    def test_a_policy_concerns_the_existing_jobs_of_its_namespace(self, store):
        store.put(JOB_SET, job_set())
        store.put(JOB_SET, job_set("elsewhere", namespace="other"))
        key = Key(ADVISOR_POLICY, "ns", "p")
        assert store.put(ADVISOR_POLICY, policy()) == {key}
        assert store.link_all() == {key, SET}
        assert store.drop(ADVISOR_POLICY, "ns", "p") == {key}
        assert store.link_all() == {SET}

    def test_a_policy_that_changes_while_jobs_are_linked_has_them_linked_once_more(self, store):
        for number in range(60):
            store.put(JOB_SET, job_set(f"js-{number:02}"))
        store.put(ADVISOR_POLICY, policy())
        seen = [store.link_some(25)]
        store.put(ADVISOR_POLICY, changed(policy(profile="west"), "2"))
        store.put(ADVISOR_POLICY, changed(policy(profile="east"), "3"))
        while not store.is_linked:
            seen.append(store.link_some(25))
        jobs = [sorted(key.name for key in keys if key.kind == JOB_SET) for keys in seen]
        assert [len(names) for names in jobs] == [25, 25, 25, 10], "the first 25 twice"
        assert {*jobs[0]} < {*jobs[1], *jobs[2], *jobs[3]} == {f"js-{n:02}" for n in range(60)}

    def test_a_hundred_changes_of_policies_at_once_link_each_job_once(self, store, monkeypatch):
        """Each was the work of all jobs: a siege stood still for half a minute in one turn of
        the loop.
        """
        for number in range(60):
            store.put(JOB_SET, job_set(f"js-{number:02}"))
        asked = []
        real = relations.dependencies_of
        monkeypatch.setattr(
            "mofa_operator.observe.cluster.store.dependencies_of",
            lambda job, *rest, **more: asked.append(job.key.name) or real(job, *rest, **more),
        )
        for number in range(100):
            store.put(ADVISOR_POLICY, changed(policy(profile=f"p{number}"), str(number + 2)))
        assert asked == []
        store.link_all()
        assert sorted(asked) == [f"js-{number:02}" for number in range(60)]

    def test_a_look_at_a_job_knows_its_policy_before_all_jobs_are_linked(self, store):
        store.put(JOB_SET, job_set())
        store.put(ADVISOR_POLICY, policy(profile="east"))
        assert not store.is_linked
        early = store.snapshot(SET, NOW).question
        assert store.link_all() >= {SET}, "and it is looked at again all the same"
        assert store.snapshot(SET, NOW).question == early

    def test_a_profile_concerns_existing_jobs_that_may_mean_it(self, store):
        store.put(JOB_SET, job_set())
        assert SET not in store.put(CLUSTER_PROFILE, profile("west"))  # nobody opted it in
        store.put(ADVISOR_POLICY, policy(profile="east"))
        store.link_all()
        assert SET in store.put(
            CLUSTER_PROFILE, changed(store.body(EAST), "2", "spec", "gpu", value="h200")
        )
        west = Key(CLUSTER_PROFILE, "", "west")
        assert store.put(
            CLUSTER_PROFILE, changed(store.body(west), "2", "spec", "gpu", value="h200")
        ) == {west}
        store.put(ADVISOR_POLICY, changed(policy(), "5"))
        store.link_all()
        assert SET in store.put(
            CLUSTER_PROFILE, changed(store.body(west), "3", "spec", "gpu", value="b200")
        )

    def test_a_target_and_its_training_jobs_concern_each_other(self, store):
        target = job_set()
        body = training_job("t", targetRef=ref(target))
        mine = key_of(TRAINING_JOB, body)
        assert store.put(TRAINING_JOB, body) == {mine}
        assert store.put(JOB_SET, target) == {SET, mine}
        assert store.put(JOB_SET, changed(target, "2", "spec", "suspend", value=True)) == {
            SET,
            mine,
        }
        assert store.drop(JOB_SET, "ns", "js") == {SET, mine}
        store.put(JOB_SET, target)
        assert store.drop(TRAINING_JOB, "ns", "t") == {SET, mine}

    def test_a_target_has_one_writer_and_the_next_one_hears_when_that_one_goes(self, store):
        target = job_set()
        store.put(JOB_SET, target)
        first, second = (training_job(name, targetRef=ref(target)) for name in ("s", "t"))
        assert store.put(TRAINING_JOB, second) == {key_of(TRAINING_JOB, second), SET}
        assert store.put(TRAINING_JOB, first) == {
            key_of(TRAINING_JOB, first),
            key_of(TRAINING_JOB, second),
            SET,
        }
        assert store.snapshot(key_of(TRAINING_JOB, first), NOW).target.key == SET
        loser = store.snapshot(key_of(TRAINING_JOB, second), NOW)
        assert (loser.target, loser.owned_by) == (None, "s")
        assert store.snapshot(SET, NOW).owned_by == "s"
        assert key_of(TRAINING_JOB, second) in store.drop(TRAINING_JOB, "ns", "s")

    def test_what_is_gone_leaves_nothing_behind(self, store):
        store.drop(TRAINING_JOB, "ns", "a")
        assert store.snapshot(JOB, NOW) is None
        assert store.put(
            CLUSTER_PROFILE, changed(store.body(EAST), "2", "spec", "gpu", value="h200")
        ) == {EAST}
        assert store.drop(TRAINING_JOB, "ns", "a") == frozenset()


class TestNodes:
    def test_only_what_a_count_shows_moves_a_profile(self, store):
        assert store.put(NODE, node("n")) == {EAST}
        assert store.put(NODE, node("n", zone="b")) == frozenset()
        for other in (
            node("n", ready=False),
            node("n"),
            node("n", cordoned=True),
            node("n", gpus=7),
            node("n", product="NVIDIA-H200"),
        ):
            assert store.put(NODE, other) == {EAST}, other
        assert store.put(NODE, node("n", ready=False, product="NVIDIA-H200")) == frozenset()

    def test_a_count_has_ready_cordoned_and_broken_nodes(self, store):
        for one in (node("a"), node("b", cordoned=True), node("c", ready=False), node("d", gpus=4)):
            store.put(NODE, one)
        store.put(NODE, node("other", product="NVIDIA-A100"))
        found = store.snapshot(EAST, NOW).node_count
        assert (found.total, found.ready, found.cordoned) == (4, 2, 1)
        assert (found.gpus, found.products) == ({4: 1, 8: 3}, (H100,))
        assert found.names == ("a", "b", "c", "d")
        assert store.drop(NODE, "", "c") == {EAST}
        assert store.nodes("east").total == 3

    def test_no_selector_means_every_node_with_gpus(self, store):
        store.put(CLUSTER_PROFILE, profile("all", nodeSelector={}))
        store.put(NODE, node("a", product="x"))
        assert store.put(NODE, node("control-plane", gpus=0)) == {EAST}
        assert store.nodes("all").names == ("a",)


class TestQuestions:
    def bytes_of(self, profile_body, *jobs):
        store = Store()
        store.put(CLUSTER_PROFILE, profile_body)
        for body in jobs:
            store.put(TRAINING_JOB, body)
        return {
            question_bytes(store.snapshot(key, NOW).question) for key in store.keys(TRAINING_JOB)
        }

    def test_jobs_that_ask_the_same_ask_it_in_the_same_bytes(self):
        target = {"apiVersion": "batch/v1", "kind": "Job", "name": "x"}
        jobs = (
            training_job("a"),
            training_job("b", namespace="other", targetRef=target, slo={"ettr": "0.9"}),
            training_job("c", mode="Apply", throughput={"preset": "megatron"}),
        )
        assert len(self.bytes_of(profile(), *jobs)) == 1
        assert len(self.bytes_of(profile(), *jobs, training_job("d", objective="Cost"))) == 2

    def test_a_node_that_does_not_matter_makes_no_new_question(self):
        assert self.bytes_of(profile(ready=4), training_job()) == self.bytes_of(
            profile(ready=3), training_job()
        )
        assert self.bytes_of(profile(ready=2), training_job()) != self.bytes_of(
            profile(ready=1), training_job()
        )
        assert self.bytes_of(profile(ready=1), training_job()) == self.bytes_of(
            profile(ready=0), training_job()
        )
        everything = training_job(cluster={"profile": "east"})
        assert self.bytes_of(profile(ready=4), everything) != self.bytes_of(
            profile(ready=3), everything
        )

    def test_what_is_shown_of_a_profile_makes_no_new_question(self):
        told = profile()
        told["status"] |= {"total": {"assumed": "5"}, "conditions": [{"type": "Ready"}]}
        told["spec"]["prometheus"] = {"windowSeconds": 3600}
        assert self.bytes_of(profile(), training_job()) == self.bytes_of(told, training_job())

    def test_config_maps_are_asked_for_by_name_and_only_the_key_goes_in(self):
        store = Store()
        store.put(TRAINING_JOB, training_job(model={"configMapRef": {"name": "llama"}}))
        store.put(JOB_SET, job_set(annotations={PREFIX + "config-ref": "conf/spec.yaml"}))
        assert store.unread_objects(JOB, Named()) == [Key(CONFIG_MAP, JOB.namespace, "llama")]
        assert store.unread_objects(SET, Named()) == [Key(CONFIG_MAP, SET.namespace, "conf")]
        given = Named(config_maps={"llama": {"config.json": "{}", "other": "large"}})
        assert store.unread_objects(JOB, given) == []
        assert store.snapshot(JOB, NOW, given).question.config_maps == {
            "llama": {"config.json": "{}"}
        }

    def test_an_existing_job_brings_the_policy_that_counts_and_the_labels_that_it_reads(self):
        store = Store()
        store.put(CLUSTER_PROFILE, profile())
        store.put(JOB_SET, job_set(labels={"team": "x", "noise": "1"}))
        store.put(ADVISOR_POLICY, policy("z", selector={"team": "x"}))
        store.put(ADVISOR_POLICY, policy("a", kinds=False))
        question = store.snapshot(SET, NOW).question
        assert [one["metadata"]["name"] for one in question.policies] == ["z"]
        assert question.job["metadata"]["labels"] == {"team": "x"}


class TestObservations:
    def test_history_is_news_only_where_it_says_something_new(self, store):
        seen = History(
            classes={"pod": FailureEvidence(node_days=9, failures=1)},
            node_days=9,
            window=9,
            coverage=1,
            at=1,
        )
        assert store.set_history("east", seen) == {EAST}
        later = History(
            classes={"pod": FailureEvidence(node_days=9, failures=1)},
            node_days=9,
            window=9,
            coverage=1,
            at=2,
        )
        assert store.set_history("east", later) == frozenset()
        assert store.snapshot(EAST, NOW).history.at == 2
        assert store.set_history("east", NoHistory(reason="HistoryUnavailable", message="x")) == {
            EAST
        }
        assert store.set_history("nowhere", seen) == frozenset()

    def test_that_a_job_does_not_run_is_news_once(self, store):
        assert not store.snapshot(JOB, NOW).looked
        assert store.set_running(JOB, None) == {JOB}
        assert store.set_running(JOB, None) == frozenset()
        assert store.set_running(JOB, Running(source="mofa", tokens_per_second=1.0)) == {JOB}
        assert store.snapshot(JOB, NOW).looked


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    kind=st.sampled_from([TRAINING_JOB, CLUSTER_PROFILE, ADVISOR_POLICY, NODE, JOB_SET]),
    spec=JSON,
    status=JSON,
    annotations=JSON,
    labels=JSON,
)
def test_no_object_is_too_strange_for_the_store(kind, spec, status, annotations, labels):
    store = Store()
    store.put(ADVISOR_POLICY, policy())
    store.put(JOB_SET, job_set())
    metadata = {"name": "x", "namespace": "ns", "annotations": annotations, "labels": labels}
    body = {"metadata": metadata, "spec": spec, "status": status}
    store.put(kind, body)
    store.put(kind, body)
    for key in store.keys(TRAINING_JOB, CLUSTER_PROFILE, JOB_SET):
        question = getattr(store.snapshot(key, NOW), "question", None)
        assert question is None or question_bytes(question)
    store.drop(kind, "ns" if kind.namespaced else "", "x")


def test_five_thousand_jobs_fit_into_eighty_megabytes():
    store = Store()
    for number in range(200):
        body = job_set(f"j{number}")
        body["spec"]["padding"] = [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(100)]
        store.put(JOB_SET, body)
    held = [len(entry.raw) for entry in store._entries.values()]
    assert 7_000 < held[0] < 9_000
    assert (
        5_000 * (max(held) + 2_000) < 80e6
    )  # two kilobytes for key, marks and relations are more than they take


def test_a_selector_that_moves_recounts(store):
    store.put(NODE, node("a", pool="new"))
    body = changed(store.body(EAST), "2", "spec", "nodeSelector", value={"pool": "old"})
    assert EAST in store.put(CLUSTER_PROFILE, body)
    assert store.nodes("east").total == 0
    assert PRODUCT not in store.body(EAST)["spec"]["nodeSelector"]


class TestHands:
    """Of whose hand our annotations are, as the API server keeps account of it."""

    def entry(self, manager, *names):
        owned = {f"f:{PREFIX}{name}": {} for name in names}
        return {
            "manager": manager,
            "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, **owned}}},
        }

    def seen(self, store, annotations, *entries):
        body = training_job(annotations={PREFIX + name: "x" for name in annotations})
        body["metadata"] |= {"managedFields": list(entries), "resourceVersion": "7"}
        store.put(TRAINING_JOB, body)
        return store.body(JOB)["metadata"]

    def test_what_we_own_alone_or_with_others_is_ours(self, store):
        entries = (
            self.entry("mofa-advisor", "strategy", "status"),
            self.entry("kubectl-client-side-apply", "status"),
        )
        assert "foreign" not in self.seen(store, ("strategy", "status"), *entries)

    def test_what_another_owns_or_nobody_is_foreign_and_peoples_keys_are_not_asked_about(
        self, store
    ):
        entries = (
            self.entry("mofa-advisor", "status"),
            self.entry("kubectl-edit", "strategy", "mode"),
        )
        found = self.seen(store, ("strategy", "status", "explanation", "mode"), *entries)
        assert found["foreign"] == {PREFIX + "strategy": "kubectl-edit", PREFIX + "explanation": ""}
        assert "managedFields" not in found

    @pytest.mark.parametrize("wrong", ["x", [None], [{"manager": 5, "fieldsV1": []}], {}])
    def test_managed_fields_that_cannot_be_read_own_nothing(self, store, wrong):
        body = training_job(annotations={PREFIX + "status": "x"})
        body["metadata"] |= {"managedFields": wrong, "resourceVersion": "7"}
        store.put(TRAINING_JOB, body)
        assert store.body(JOB)["metadata"]["foreign"] == {PREFIX + "status": ""}


def test_a_label_of_its_namespace_opts_a_job_in_and_its_end_out(store):
    space = {"metadata": {"name": "ns", "labels": {PREFIX + "advise": "true"}}}
    store.put(JOB_SET, job_set(annotations={}))
    assert store.put(NAMESPACE, space) == frozenset()
    assert store.link_all() == {SET}
    assert store.snapshot(SET, NOW).question.opted_in
    assert store.put(NAMESPACE, space) == frozenset()
    assert store.is_linked, "nothing is new"
    assert not store.differs(NAMESPACE, space)
    assert store.keys(NAMESPACE) == [Key(NAMESPACE, "", "ns")]
    assert store.drop(NAMESPACE, "", "ns") == frozenset()
    assert not store.snapshot(SET, NOW).question.opted_in
    assert store.link_all() == {SET}


def test_of_config_maps_only_those_are_read_that_the_pod_template_mounts(store):
    body = job_set(annotations={PREFIX + "mode": "Annotate"})
    jobs = body["spec"]["replicatedJobs"]
    pod = jobs[-1]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "c", "configMap": {"name": "tune"}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "c", "mountPath": "/etc/run"}]
    store.put(JOB_SET, body)
    assert store.unread_objects(SET, Named()) == [Key(CONFIG_MAP, "ns", "tune")]
    maps = {"tune": {"run.yaml": "max_seq_length: 2048"}, "other": {"a": "b"}}
    asked = store.snapshot(SET, NOW, Named(config_maps=maps)).question
    assert asked.config_maps == {"tune": {"run.yaml": "max_seq_length: 2048"}}

"""What somebody asks to be different is in the answer, and what cannot be right is said by
its parameter.
"""

from dataclasses import replace

import pytest
from each import each
from operator_objects import job_set, policy, profile, training_job

from mofa_model.kinds import JOB_SET
from mofa_model.page import AdviceView
from mofa_operator.decide.answer import view
from mofa_operator.decide.question import PLACES
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.observe.cluster.questions import question_bytes
from mofa_operator.observe.cluster.store import Store
from mofa_operator.page.job import changes_in, fields
from mofa_operator.snapshot import Refusal


@pytest.fixture(scope="module")
def question():
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(TRAINING_JOB, training_job())
    return store.snapshot(Key(TRAINING_JOB, "ns", "a"), 0.0).question


def asked(question, **changes):
    return view(replace(question, changes=changes))


def test_without_changes_it_is_the_job_s_own_answer_and_its_bytes_are_the_same(question):
    assert question_bytes(question) == question_bytes(replace(question, changes={}))
    assert question_bytes(question) != question_bytes(replace(question, changes={"nodes": "1"}))
    assert isinstance(view(question), AdviceView)


def test_a_change_is_in_the_answer(question):
    own, other = view(question), asked(question, nodes="1", tokens="1T")
    assert own.title != other.title
    assert "on 8 h100" in other.title
    assert other.advice.predicted.duration_seconds.target > 0
    longer = asked(question, sequence_length="8k", nodes="1", tokens="1T")
    steps = [one.advice.predicted.step_seconds.target for one in (longer, other)]
    assert steps[0] > steps[1]
    today = asked(question, current="tp=8", nodes="1").advice.current
    planned = asked(question, planned="tp=8", nodes="1").advice.current
    assert today.short == planned.short
    assert today.short.startswith("tp8")
    assert (today.word, planned.word) == ("today", "planned")


@each(
    [
        ({"nodes": "many"}, "nodes", "write a whole number"),
        ({"nodes": "0"}, "nodes", "cannot be right"),
        ({"global_batch_size": "1.5"}, "global_batch_size", "whole number"),
        ({"tokens": "all"}, "tokens", "cannot be right"),
        ({"precision": "int1"}, "precision", "unknown name"),
        ({"framework": "mine"}, "framework", "unknown name"),
        ({"objective": "fame"}, "objective", "cannot be right"),
        ({"current": "tp=many"}, "current", "many"),
        ({"planned": "tp=many"}, "planned", "many"),
        ({"current": "tp=8", "planned": "tp=8"}, "current", "or a planned one"),
    ]
)
def test_what_cannot_be_right_is_said_by_its_parameter(changes, name, why):
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(TRAINING_JOB, training_job())
    found = asked(store.snapshot(Key(TRAINING_JOB, "ns", "a"), 0.0).question, **changes)
    assert isinstance(found, Refusal), found
    assert list(found.why) == [name], found.why
    assert why in found.why[name]


def test_the_form_asks_what_can_be_changed_and_nothing_else():
    assert {one.name for one in fields()} == set(PLACES)
    assert changes_in({"nodes": " 4 ", "tokens": "", "mode": "Apply"}) == {"nodes": "4"}
    assert len(changes_in({"nodes": "1" * 1000})["nodes"]) == 200


def test_an_existing_job_can_be_asked_about_too():
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(ADVISOR_POLICY, policy())
    store.put(
        JOB_SET,
        job_set(
            annotations={"advisor.mofa.dev/model": "llama3-8b", "advisor.mofa.dev/mode": "Annotate"}
        ),
    )
    snapshot = store.snapshot(Key(JOB_SET, "ns", "js"), 0.0)
    found = asked(snapshot.question, nodes="many")
    assert list(found.why) == ["nodes"]
    assert "on 8 h100" in asked(snapshot.question, nodes="1").title

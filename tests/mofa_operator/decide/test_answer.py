"""The operator's answers are those of `mofa annotate`, for equal questions equal, and never an
exception of the question's.
"""

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_objects import NOW, job_set, key_of, policy, profile, training_job

from mofa_model import VERSION
from mofa_model.advice import advise
from mofa_model.annotations import MEASURED, PREFIX, RUNS
from mofa_model.kinds import JOB_SET
from mofa_model.manifest.advised import launch_words
from mofa_model.manifest.documents import Documents
from mofa_model.manifest.status import TrainingJobStatus
from mofa_model.manifest.stream import Annotator
from mofa_model.manifest.surroundings import bundled_text
from mofa_operator.decide.answer import answer, prior_weight
from mofa_operator.decide.question import parsed_question as understood
from mofa_operator.keys import ADVISOR_POLICY, CLUSTER_PROFILE, TRAINING_JOB
from mofa_operator.observe.cluster.store import Store
from mofa_operator.snapshot import Named, Question

EXAMPLES = Path(__file__).parents[3] / "examples"
KINDS = {kind.kind: kind for kind in (TRAINING_JOB, CLUSTER_PROFILE, ADVISOR_POLICY, JOB_SET)}


def asked(*bodies, maps=None):
    """The question of the last of some bodies."""
    store = Store()
    for body in bodies:
        store.put(KINDS[body["kind"]], body)
    key = key_of(KINDS[bodies[-1]["kind"]], bodies[-1])
    return store.snapshot(key, NOW, Named(config_maps=maps or {})).question


def annotated(text):
    """The annotations that the command gives the job in a stream."""
    moment = "2026-01-01T00:00:00Z"
    command = Annotator(answer=advise, words=launch_words, model_version=VERSION, now=moment)
    (out,), outcomes = command.run([Documents.parse(text, "x.yaml")])
    name = outcomes[0].item.name
    (job,) = [item for item in Documents.parse(out, "x.yaml").items if item.name == name]
    return {
        k: v
        for k, v in job.annotations.items()
        if k.removeprefix(PREFIX) not in ("computed-at", "model")
    }


def from_file(text):
    """The question that the operator asks once a file and the profile that it names are applied."""
    items = [dict(item.value) for item in Documents.parse(text, "x.yaml").items]
    jobs = [item for item in items if item["kind"] in {"TrainingJob", "JobSet"}]
    others = [item for item in items if item not in jobs and item["kind"] != "ClusterProfile"]
    stated = [item for item in others if "profile" in item["spec"]] or jobs
    name = stated[0]["spec"].get("profile") or stated[0]["spec"]["cluster"]["profile"]
    pool = dict(Documents.parse(bundled_text(name), "x.yaml").items[0].value)
    for body in (*others, *jobs):
        body["metadata"] = {**body["metadata"], "namespace": "default"}
    return asked(pool, *others, *jobs)


@pytest.mark.parametrize("name", ["llama3-405b", "deepseek-v3", "jobset"])
def test_annotations_are_those_of_the_command(name):
    text = (EXAMPLES / f"{name}.yaml").read_text("utf-8")
    assert dict(answer(from_file(text)).annotations) == annotated(text)


def test_a_running_job_with_its_measured_step_is_answered_with_that():
    """Such a question could not be hashed: command and operator failed on every job that had
    the annotation.
    """
    runs = "--tensor-model-parallel-size 4 --micro-batch-size 1 --use-distributed-optimizer --bf16"
    plain = answer(asked(profile(), policy(), job_set(annotations={RUNS: runs})))
    step = float(f"{1.3 * plain.says.current.predicted['step_seconds'].target:.3f}")
    body = job_set(annotations={RUNS: runs, MEASURED: str(step)})
    found = answer(asked(profile(), policy(), body))
    assert found.outcome in {"Recommended", "LowConfidence"}
    now = found.says.current.predicted["step_seconds"]
    assert now.target == pytest.approx(step, rel=0.03)
    assert "as measured: 1.30 of its estimate" in found.explanation


class TestOutcomes:
    def test_an_answer_says_everything_that_is_shown(self):
        found = answer(asked(profile(), training_job()))
        assert found.outcome == "Recommended"
        assert found.profile == "east"
        assert found.strategy["tp"] == found.annotations[PREFIX + "strategy"].split(",")[
            0
        ].removeprefix("tp=")
        predicted = found.predicted["tokens_per_second"]
        assert predicted.lower <= predicted.target <= predicted.upper
        assert (
            f"{predicted.target:.0f}" == found.annotations[PREFIX + "predicted-tokens-per-second"]
        )
        assert f"{found.says.odds.fits:.3f}" == found.annotations[PREFIX + "probability-of-fitting"]
        assert found.says.odds.beats is None, "nobody said what runs today"
        TrainingJobStatus.model_validate(dict(found.status))

    def test_rates_that_nobody_counted_are_said_to_be_assumptions(self):
        question = asked(profile(), training_job())
        assert answer(question).reason == "PriorDominated"
        assert prior_weight(understood(question)) == 1.0

    def test_the_prior_weighs_two_failures_against_those_that_were_counted(self):
        remembered = [{"name": "pod", "failures": 6, "exposureNodeDays": "2000"}]
        question = asked(profile(failures=remembered), training_job())
        assert prior_weight(understood(question)) == 2 / (2 + 6)
        assert answer(question).reason == "Recommended"

    def test_who_asks_for_assumptions_is_not_told_that_they_are_assumptions(self):
        assumed = training_job(failureAssumptions={"source": "Assumed"})
        assert answer(asked(profile(), assumed)).reason == "Recommended"

    def test_fewer_ready_nodes_than_asked_are_still_advised_with_low_confidence(self):
        found = answer(asked(profile(ready=1), training_job()))
        assert (found.outcome, found.reason) == ("LowConfidence", "LowConfidence")
        assert "fewer nodes are ready than are asked for" in found.caveats

    def test_a_profile_that_does_not_exist_is_named_with_where_to_look(self):
        found = answer(asked(training_job()))
        assert (found.outcome, found.reason) == ("InvalidInput", "ProfileMissing")
        assert "'east'" in found.explanation
        assert "kubectl get cprof" in found.explanation

    def test_bundled_profiles_are_for_the_command_line_alone(self):
        named = training_job(cluster={"profile": "h100-east", "nodes": 2})
        assert answer(asked(profile(), named)).reason == "ProfileMissing"

    @pytest.mark.parametrize("pools", [(), ("north", "south")])
    def test_no_bundled_profile_is_assumed_for_a_job_that_names_none(self, pools):
        """On the desk the pods' GPU would decide; in a cluster its own profiles do, and here none
        or two could be meant.
        """
        found = answer(asked(*(profile(name) for name in pools), policy(), job_set()))
        assert found.outcome == "InvalidInput"
        choices = ", and north (h100), south (h100) could be meant" if pools else ""
        assert found.explanation == (
            f"profile: is missing{choices}; name one in an AdvisorPolicy, see kubectl get cprof"
        )

    def test_an_invalid_spec_names_the_field(self):
        found = answer(asked(profile(), training_job(model={"preset": "llama-99"})))
        assert (found.outcome, found.reason) == ("InvalidInput", "InvalidInput")
        assert found.explanation.startswith("spec.model.preset")

    def test_what_does_not_fit_is_an_answer_with_its_reasons(self):
        large = training_job(nodes=1, model={"preset": "llama3.1-405b"})
        found = answer(asked(profile(), large))
        assert (found.outcome, found.reason) == ("NoRecommendation", "NoFeasibleLayout")
        assert any(row["reason"] == "OutOfMemory" for row in found.status["rejected"])

    @pytest.mark.parametrize(
        "annotations, policies, wanted",
        [
            ({"config-ref": "conf"}, [policy()], "create it in the job's namespace"),
            ({}, [policy(profile="nowhere")], "kubectl get cprof"),
            ({"mode": "On"}, [policy()], "one of Disabled, Annotate, Apply"),
        ],
    )
    def test_messages_advise_what_helps_in_a_cluster(self, annotations, policies, wanted):
        given = {PREFIX + name: value for name, value in annotations.items()}
        found = answer(asked(profile(), profile("west"), *policies, job_set(annotations=given)))
        assert found.outcome == "InvalidInput"
        assert wanted in found.explanation
        assert "--profile" not in found.explanation
        assert "stream" not in found.explanation

    def test_two_profiles_and_none_named_is_a_question_to_the_user(self):
        found = answer(asked(profile(), profile("west"), policy(), job_set()))
        assert "profile: is missing" in found.explanation
        assert "kubectl get cprof" in found.explanation

    def test_a_config_map_is_read_where_it_is_named(self):
        config = '{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256}'  # fmt: skip
        job = training_job(model={"configMapRef": {"name": "llama"}})
        assert (
            answer(asked(profile(), job, maps={"llama": {"config.json": config}})).outcome
            == "Recommended"
        )
        assert "ConfigMap was not found" in answer(asked(profile(), job)).explanation


class TestLaws:
    def test_equal_questions_have_equal_answers_and_both_travel(self):
        question = asked(profile(), training_job())
        travelled = pickle.loads(pickle.dumps(question))
        assert answer(travelled) == answer(question)
        assert pickle.loads(pickle.dumps(answer(question))) == answer(question)

    def test_what_is_rounded_away_changes_neither_hash_nor_advice(self):
        """With 400 node-days of prior that hold 0.6 failures, 43.6 and 44.6 in 31,120 are 1.4 in a
        thousand both.
        """
        questions = [asked(profile(failures=[history(n)]), training_job()) for n in (43, 44)]
        first, second = map(answer, questions)
        assert first.digest == second.digest
        assert first.annotations == second.annotations
        weights = [prior_weight(understood(question)) for question in questions]
        assert weights[0] > weights[1]

    def test_names_are_in_no_answer(self):
        broken = {"model": {"preset": "llama-99"}}
        first, second = (
            answer(asked(profile(), training_job(name, **broken))) for name in ("x1", "x2")
        )
        assert first == second


def history(failures):
    """The process class as a status remembers it."""
    return {"name": "process", "failures": failures, "exposureNodeDays": "30720"}


LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats(-1, 1e6)
    | st.sampled_from(["", "east", "8", "1.5"])
)
JSON = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
SPEC = training_job()["spec"]
POOL = profile()["spec"]
PATHS = (
    [(key,) for key in SPEC]
    + [("training", key) for key in SPEC["training"]]
    + [("cluster", "nodes")]
)


@st.composite
def mutated(draw, spec, paths):
    """A spec with one or two places replaced by anything."""
    made = {key: dict(value) if isinstance(value, dict) else value for key, value in spec.items()}
    for path in draw(st.lists(st.sampled_from(paths), min_size=1, max_size=2)):
        place = made
        for step in path[:-1]:
            place = place[step] if isinstance(place.get(step), dict) else {}
        place[path[-1]] = draw(JSON)
    return made


@settings(max_examples=60, deadline=None)
@given(
    spec=JSON | mutated(SPEC, PATHS),
    pool=JSON | mutated(POOL, [(key,) for key in POOL]),
    status=JSON,
)
def test_whatever_a_training_job_asks_there_is_an_answer(spec, pool, status):
    job = {**training_job(), "spec": spec}
    for given_pool in (profile(), {**profile(), "spec": pool, "status": status}):
        found = answer(asked(given_pool, job))
        assert found.annotations[PREFIX + "status"] == found.outcome
        TrainingJobStatus.model_validate(dict(found.status))


@settings(max_examples=60, deadline=None)
@given(
    spec=JSON,
    annotations=st.dictionaries(
        st.sampled_from(["mode", "model", "config-ref"]), st.text(max_size=8)
    ),
    labels=JSON,
)
def test_whatever_a_foreign_object_holds_there_is_an_answer(spec, annotations, labels):
    given_annotations = {PREFIX + key: value for key, value in annotations.items()}
    for job in (
        job_set(annotations=given_annotations),
        {**job_set(annotations=given_annotations), "spec": spec},
    ):
        job["metadata"]["labels"] = labels
        found = answer(asked(profile(), policy(), job))
        assert found.annotations[PREFIX + "status"] == found.outcome


def test_a_question_without_anything_is_answered():
    assert answer(Question(job={"kind": "TrainingJob"}, profiles=())).outcome == "InvalidInput"
    assert answer(Question(job={}, profiles=())).outcome == "InvalidInput"

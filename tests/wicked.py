"""Objects of somebody who wishes nobody well, as he may write them in a namespace of his own."""

from hypothesis import strategies as st
from operator_objects import job_set, meta, policy, ref, training_job

from mofa_model.annotations import PREFIX
from mofa_model.kinds import JOB_SET
from mofa_operator.keys import ADVISOR_POLICY, TRAINING_JOB

NAMES = st.sampled_from(["train", "a", "b", "x" * 253])
TEXTS = st.sampled_from(
    [
        "",
        "x",
        "\n",
        "a\nb: c",
        "\u202eevil",
        "{{.}}",
        "<script>",
        "research/train",
        "Recommended",
        "\ud7ff",
        "é" * 200,
        "x" * 200,
    ]
)


@st.composite
def jobs(draw):
    """A TrainingJob of somebody who wishes nobody well."""
    body = training_job(
        draw(NAMES), namespace="evil", nodes=draw(st.sampled_from([1, 2, 4, 10_000_000]))
    )
    spec, metadata = body["spec"], body["metadata"]
    for key, value in draw(
        st.dictionaries(
            st.sampled_from(
                [
                    "status",
                    "strategy",
                    "inputs-hash",
                    "run-record",
                    "predicted-mfu",
                    "mode",
                    "paused",
                    "config-ref",
                ]
            ),
            TEXTS,
            max_size=4,
        )
    ).items():
        metadata.setdefault("annotations", {})[PREFIX + key] = value
    if draw(st.booleans()):
        metadata["ownerReferences"] = [
            {
                "apiVersion": "mofa.dev/v1alpha1",
                "kind": "TrainingJob",
                "name": "train",
                "uid": meta("train")["uid"],
            }
        ]
        metadata["finalizers"] = ["mofa.dev/held"]
        metadata["labels"] = {
            "kueue.x-k8s.io/queue-name": "gold",
            "training_namespace": "research",
            "pod": "research-0",
        }
    if draw(st.booleans()):
        spec["targetRef"] = draw(
            st.sampled_from(
                [
                    ref(training_job("train")),
                    ref(job_set("js")),
                    {"apiVersion": "v1", "kind": "Secret", "name": "token"},
                ]
            )
        )
    if draw(st.booleans()):
        spec["throughput"] = {
            "preset": draw(st.sampled_from(["mofa", "megatron", "evil"])),
            "matchers": {"namespace": "research", "job": draw(TEXTS)[:256]},
        }
    spec["mode"] = draw(st.sampled_from(["Annotate", "Apply", "Disabled"]))
    spec["model"] = draw(
        st.sampled_from(
            [
                {"preset": "llama3.1-8b"},
                {"preset": "no-such"},
                {"configMapRef": {"name": "research"}},
                {},
                None,
            ]
        )
    )
    if draw(st.booleans()):
        body["status"] = {
            "inputsHash": draw(TEXTS), "health": "Recommended", "observed": {"tokensPerSecond": 10**12, "residual": "9"},
            "conditions": [{"type": "Ready", "status": "True", "reason": draw(TEXTS), "message": draw(TEXTS)}],
        }  # fmt: skip
    return TRAINING_JOB, body


ROLES = st.one_of(
    jobs(),
    st.builds(lambda name, text: (JOB_SET, job_set(name, namespace="evil", annotations={PREFIX + "model": text})), NAMES, TEXTS),
    st.builds(
        lambda name, where: (ADVISOR_POLICY, policy(name, namespace="evil", profile=where)),
        st.sampled_from(["p", "train"]), st.sampled_from(["east", "west"]),
    ),
)  # fmt: skip

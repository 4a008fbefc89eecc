"""Annotating a manifest changes our lines and no other byte."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from mofa_model.errors import BadFile, InputError
from mofa_model.manifest.documents import LARGEST, Documents, joined

OURS = "advisor.mofa.dev/"
CHANGE = {
    OURS + "status": "Recommended",
    OURS + "strategy": "tp=8,pp=8,cp=1",
    OURS + "predicted-ettr": "0.94",
    OURS + "explanation": "It's: fine # really, “yes” \\ no",
    OURS + "recommendation": '{"a":[1,2],"b":"it\'s"}',
}
REMOVAL = dict.fromkeys(CHANGE)

COMMENTED = """\
# a comment
apiVersion: mofa.dev/v1alpha1
kind: TrainingJob
metadata:
  name: a   # inline
  labels:
    x: y
# trailing comment
spec:
  tokens: 15T
"""


def annotated(text, change=CHANGE):
    stream = Documents.parse(text, "x.yaml")
    return stream.annotated(dict.fromkeys(range(len(stream.items)), change))


def annotations_of(text):
    return [item.annotations for item in Documents.parse(text, "x.yaml").items]


def without_ours(text):
    return "".join(
        line for line in text.splitlines(keepends=True) if "advisor.mofa.dev" not in line
    )


def test_comments_order_and_quotes_stay():
    text = annotated(COMMENTED)
    assert without_ours(text).replace("  annotations:\n", "") == COMMENTED
    assert '    advisor.mofa.dev/predicted-ettr: "0.94"\n' in text


SHAPES = {
    "no annotations": COMMENTED,
    "annotations with comments and a block of text": """\
metadata:
  annotations:
    # who
    owner: "me"   # keep
    text: |
      hello
      world

    advisor.mofa.dev/status: Old # ours
  name: b
kind: X
""",
    "braces": "kind: X\nmetadata: {name: c}\n",
    "braces with annotations": 'kind: X\nmetadata: {name: c, annotations: {"a": b}}\n',
    "json": json.dumps(
        {"kind": "X", "metadata": {"name": "d", "annotations": {"a": "b"}}}, indent=2
    ),
    "json on one line": json.dumps({"kind": "X", "metadata": {"name": "d"}}),
    "a null": "kind: X\nmetadata:\n  name: e\n  annotations:\nspec: 1",
    "a tilde": "kind: X\nmetadata:\n  annotations: ~\n  name: e\n",
    "empty braces": "kind: X\nmetadata:\n  name: f\n  annotations: {}\n",
    "a list": "kind: List\nitems:\n- kind: X\n  metadata:\n    name: g\n- kind: Y\n  metadata:\n      name: h",
    "a resource list": "kind: ResourceList\nitems:\n  - kind: X\n    metadata: {name: g}\n",
    "several documents": "kind: X\nmetadata:\n  name: a\n---\n# two\nkind: Y\nmetadata:\n  name: b\n...\n",
    "deep indentation": "kind: X\nmetadata:\n        name: a\n        labels:\n            b: c\nspec: {}\n",
    "annotations last": "kind: X\nmetadata:\n  name: a\n  annotations:\n    a: b",
    "carriage returns": "kind: X\r\nmetadata:\r\n  name: a\r\nspec: 1\r\n",
    "letters beyond ascii": "kind: X # ümläut 🦆\nmetadata:\n  name: a\n  annotations:\n    a: 🦆\n",
    "kept blank lines": "kind: X\nmetadata:\n  annotations:\n    a: |+\n      text\n\n\n  name: a\n",
    "a key without a value": "kind: X\nmetadata:\n  annotations:\n    a: b\n    note:\n  name: a\nspec: 1\n",
    "our key without a value": "kind: X\nmetadata:\n  annotations:\n    advisor.mofa.dev/status:\n  name: a\n",
    "a dash without a value": "kind: X\nmetadata:\n  name: a\n  finalizers:\n  - a\n  -\nspec: 1\n",
    "an inner key without a value": "kind: X\nmetadata:\n  name: a\n  owners:\n  - a:\n    b:\nspec: 1\n",
    "folded text": "kind: X\nmetadata:\n  annotations:\n    a: one\n      two\n  name: a\n",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_every_shape_is_annotated_stays_fixed_and_can_be_undone(text):
    before = annotations_of(text)
    once = annotated(text)
    for old, new in zip(before, annotations_of(once), strict=True):
        assert new == {**old, **CHANGE}
    assert annotated(once) == once
    undone = annotated(once, REMOVAL)
    for old, new in zip(before, annotations_of(undone), strict=True):
        assert new == {key: value for key, value in old.items() if not key.startswith(OURS)}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_everything_else_says_the_same_to_another_parser(text):
    def rest(stream):
        found = []
        for document in YAML(typ="safe", pure=True).load_all(stream):
            for item in (document or {}).get("items", [document]):
                item["metadata"].pop("annotations", None)
            found.append(document)
        return found

    assert rest(annotated(text)) == rest(text)


def test_a_stream_without_changes_is_the_same_text():
    assert annotated(COMMENTED, {}) == COMMENTED


def test_shared_annotations_are_refused_because_an_edit_would_reach_others():
    text = "kind: X\nmetadata:\n  annotations: &a\n    b: c\n---\nkind: X\nmetadata:\n  name: a\n"
    with pytest.raises(BadFile, match="line 3: annotations that objects share by a YAML anchor"):
        annotated(text)


def test_an_object_without_metadata_is_refused():
    with pytest.raises(BadFile, match="needs metadata"):
        annotated("kind: X\n")


def test_streams_are_joined_with_a_line_between_documents():
    assert joined(["a: 1", "# c\nb: 2\n", "---\nc: 3\n", ""]) == "a: 1\n---\n# c\nb: 2\n---\nc: 3\n"


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(12)
)


@pytest.mark.parametrize(
    "text, message",
    [
        (BOMB, "has more than 200000 values once its aliases are followed"),
        ("a: &a [*a]", "nested too deeply"),
        ("[" * 2_000, "nested too deeply"),
        ("a: {b: " * 500, "nested too deeply|is not YAML"),
        ("a: *nowhere", "line 1: found undefined alias"),
        ("kind: X\nmetadata: {name: ", "line 2"),
        ("a: 1\na: 2", "line 2: the key 'a' is given twice"),
        ("? [a]\n: b", "line 1: the key .* is not text"),
        ("- 1\n- 2", "not a Kubernetes object; write a mapping"),
        ("just text", "not a Kubernetes object; write a mapping"),
        ("kind: List\nitems: 3", "items of a List cannot be int"),
        ("<<: 3", "<< takes a mapping"),
        ("a: \x00", "is not YAML"),
        ("x" * (LARGEST + 1), "give a smaller file"),
    ],
)
def test_a_bad_stream_is_refused_in_one_line(text, message):
    with pytest.raises(BadFile, match=message) as caught:
        Documents.parse(text, "x.yaml")
    assert "\n" not in str(caught.value)


def test_values_are_those_of_json():
    text = "a: 0x10\nb: 1_000\nc: .nan\nd: 2026-01-01\ne: true\nf: ~\ng: 1e3\nh: '1'\ni: !own x\n"
    (item,) = Documents.parse(text, "x").items
    nan = item.value["c"]
    assert nan != nan  # noqa: PLR0124
    assert {k: v for k, v in item.value.items() if k != "c"} == {
        "a": 16, "b": 1000, "d": "2026-01-01", "e": True, "f": None, "g": 1000.0, "h": "1", "i": "x",
    }  # fmt: skip


def test_merge_keys_are_followed():
    (item,) = Documents.parse("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n", "x").items
    assert item.value["use"] == {"x": 1, "y": 3}


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from("ab:-{}[],\n #&*!|>'\"%@`?~<\t\\ü🦆"), max_size=60))
def test_any_text_is_a_stream_or_an_input_error(text):
    with contextlib.suppress(InputError):
        assert Documents.parse(text, "x").annotated({}) == text


words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12)


@settings(max_examples=150)
@given(
    annotations=st.dictionaries(words, words, max_size=4),
    labels=st.dictionaries(words, words, max_size=2),
    value=words,
    indent=st.sampled_from([None, 2, 4]),
    block=st.booleans(),
)
def test_any_object_keeps_its_own_annotations(annotations, labels, value, indent, block):
    metadata = {"name": "a", "annotations": annotations, "labels": labels}
    text = json.dumps({"kind": "X", "metadata": metadata}, indent=indent)
    if block:
        lines = [f"    {json.dumps(key)}: {json.dumps(word)}" for key, word in annotations.items()]
        text = "\n".join(["kind: X", "metadata:", "  annotations:", *lines, "  name: a", ""])
    change = {OURS + "explanation": value}
    once = annotated(text, change)
    assert annotations_of(once) == [{**annotations, **change}]
    assert annotated(once, change) == once

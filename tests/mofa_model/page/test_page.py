"""A page needs nothing but itself, escapes what it shows, and says in words what its
pictures show.
"""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_model.advice import advise
from mofa_model.cli import main
from mofa_model.manifest.inputs import to_inputs
from mofa_model.manifest.parsing import parse
from mofa_model.manifest.surroundings import bundled_profiles
from mofa_model.manifest.training_job import TrainingJobSpec
from mofa_model.page import advice_page, view_of
from mofa_model.page.advice import brief_list
from mofa_model.page.figures import band, parts
from mofa_model.page.markup import el, page, table, text
from mofa_model.units import Range

SPEC = {
    "model": {"preset": "llama3-8b"},
    "training": {
        "tokens": "1T",
        "sequenceLength": 8192,
        "globalBatchSize": 512,
        "framework": "megatron",
    },
    "cluster": {"profile": "h100-east", "nodes": 8},
    "current": {"strategy": "tp=8,pp=1,dp=8"},
}


class Outline(HTMLParser):
    """What a page is made of."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def outline(html):
    found = Outline()
    found.feed(html)
    return found


@pytest.fixture(scope="module")
def request_and_advice():
    question = to_inputs(parse(TrainingJobSpec, SPEC, "spec"), bundled_profiles()["h100-east"])
    return question, advise(question)


@pytest.fixture(scope="module")
def html(request_and_advice):
    return advice_page(view_of(*request_and_advice, ("--tensor-model-parallel-size", "2")))


def test_a_page_fetches_nothing_and_runs_nothing(html):
    found = outline(html)
    assert not {"script", "link", "img", "iframe", "form", "object"} & set(found.tags)
    assert not any(
        key.startswith("on") or key == "src" for _, given in found.attributes for key in given
    )
    assert all(
        given["href"].startswith(("#", "/")) for tag, given in found.attributes if tag == "a"
    )
    assert "url(" not in html


def test_a_page_has_landmarks_one_first_heading_and_a_language(html):
    found = outline(html)
    assert [found.tags.count(tag) for tag in ("html", "main", "header", "footer", "h1")] == [1] * 5
    assert dict(found.attributes)["html"]["lang"] == "en"
    skip = next(given for tag, given in found.attributes if tag == "a")
    assert skip["href"] == "#content"
    assert ("main", {"id": "content"}) in found.attributes


def test_every_picture_has_a_role_and_a_title_and_every_table_headings(html):
    found = outline(html)
    pictures = [given for tag, given in found.attributes if tag == "svg"]
    assert len(pictures) == 3
    assert all(given["role"] == "img" for given in pictures)
    assert found.tags.count("title") >= 1 + len(pictures)
    assert found.tags.count("thead") == found.tags.count("table")
    scopes = {given.get("scope") for tag, given in found.attributes if tag == "th"}
    assert scopes == {"col", "row"}


def test_the_parts_of_the_step_add_up_to_the_step_that_is_told(request_and_advice):
    view = view_of(*request_and_advice)
    assert sum(view.step_parts.values()) == pytest.approx(view.advice.predicted.step_seconds.target)
    assert sum(view.memory_parts.values()) == pytest.approx(
        view.advice.predicted.memory_bytes.target
    )
    best = max(view.curve, key=lambda point: point.ettr.target)
    assert best.steps == pytest.approx(view.advice.checkpoint_interval_steps, rel=0.3)


def test_an_answer_without_a_strategy_is_a_page_too():
    spec = SPEC | {
        "model": {"preset": "llama3-405b"},
        "cluster": {"profile": "h100-east", "nodes": 1},
    }
    question = to_inputs(
        parse(TrainingJobSpec, spec | {"current": None}, "spec"), bundled_profiles()["h100-east"]
    )
    html = advice_page(view_of(question, advise(question)))
    assert "NoRecommendation" in html
    assert "OutOfMemory" in html


@given(st.text())
def test_text_never_becomes_markup(words):
    html = text(page(words, el("p", words, title=words), table((words,), [(words,)])))
    assert outline(html).tags.count("p") == 2
    assert (
        outline(html).tags
        == outline(text(page("a", el("p", "a", title="a"), table(("a",), [("a",)])))).tags
    )


def test_a_bar_leaves_out_what_is_zero_and_says_the_shares():
    told = "".join(outline(text(parts("step", {"work": 3.0, "wait": 1.0, "none": 0.0}))).words)
    assert "work: 3 (75.0%)" in told
    assert "wait: 1 (25.0%)" in told
    assert "none" not in told


def test_a_band_says_what_was_predicted_and_what_was_seen():
    told = "".join(
        outline(
            text(band("tokens/s", Range(lower=90.0, target=100.0, upper=110.0), 85.0, "{:.0f}"))
        ).words
    )
    assert told == "tokens/s: predicted 100, between 90 and 110; seen 85"


def test_the_command_writes_the_page(capsys):
    words = "advise --model llama3-8b --gpu h100 --gpus 64 --tokens 1T --global-batch 512 --seq 8192 -o html"
    assert main(words.split()) == 0
    written = capsys.readouterr().out
    assert written.startswith("<!doctype html>")
    assert "Where the time of a step goes" in written


def test_a_command_on_a_page_keeps_its_layout_as_a_shell_takes_it():
    layout = "tp=8,pp=1,cp=1,ep=1,dp=4,vpp=1,mbs=1,sp=true"
    rows = brief_list([("next", f"mofa advise --current {layout}"), ("why", f"{layout} is slow")])
    said = ["".join(one.itertext()) for one in rows.iter("dd")]
    assert said == [f"mofa advise --current {layout}", "tp8 dp4 mbs1 sp distributed is slow"]

"""Every page can be read by a keyboard, by a screen reader, in the dark, and by a browser that runs
no scripts.
"""

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

pytest.importorskip("aiohttp", reason="the page needs the extra `operator`")

from operator_objects import job_set, profile, shown, training_job

from mofa_model.kinds import JOB_SET
from mofa_model.page.markup import STYLE
from mofa_operator.decide.answer import view
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.observe.cluster.store import Store
from mofa_operator.page.job import job_page
from mofa_operator.page.jobs import jobs_page
from mofa_operator.page.profiles import profile_page, profiles_page
from mofa_operator.snapshot import Curves, Refusal

TEXT = ("ink", "soft", "link", "good", "warn", "bad")
"""Colours of text."""
HISTORY = Curves(predicted=((0.0, 100.0), (900.0, 100.0)), observed=((0.0, 95.0), (900.0, 90.0)))
DRAWN = tuple(f"c{number}" for number in range(8))
"""Colours of pictures."""


def pages():
    """One page of each kind, with everything on it."""
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(TRAINING_JOB, training_job(current={"strategy": "tp=8"}))
    store.put(JOB_SET, job_set(annotations={"advisor.mofa.dev/status": "InvalidInput"}))
    job = store.body(Key(TRAINING_JOB, "ns", "a"))
    band = {"lower": 90, "target": 100, "upper": 110}
    job["status"] = {
        "recommendation": {"predicted": {"tokensPerSecond": band}},
        "observed": {"tokensPerSecond": 95, "interruptions": 1},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Recommended", "message": "fine"}
        ],
    }
    pool = profile()
    pool["status"] = {
        "failures": [{"name": "pod", "failures": 2, "assumed": "3", "verdict": "Consistent", "rate": {"lower": "1", "mean": "2", "upper": "3"}}],
        "conditions": job["status"]["conditions"],
    }  # fmt: skip
    asked = store.snapshot(Key(TRAINING_JOB, "ns", "a"), 0.0).question
    return {
        "jobs": jobs_page([shown(job), shown(store.body(Key(JOB_SET, "ns", "js")))]),
        "no jobs": jobs_page([]),
        "job": job_page(shown(job), view(asked), HISTORY),
        "job with a wrong question": job_page(
            shown(job),
            Refusal({"nodes": "'x' cannot be right", "": "no"}),
            "Later.",
            {"nodes": "x"},
        ),
        "job without advice": job_page(shown(job), "Later."),
        "profiles": profiles_page([live(CLUSTER_PROFILE, pool)]),
        "profile": profile_page(live(CLUSTER_PROFILE, pool)),
    }


PAGES = pages()


class Outline(HTMLParser):
    """Elements in their order, with attributes and text."""

    def __init__(self, html):
        super().__init__()
        self.elements = []
        self._open = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        made = {"tag": tag, "text": "", **dict(attrs)}
        self.elements.append(made)
        if tag not in {"meta", "rect", "path", "polygon", "polyline", "circle", "br", "input"}:
            self._open.append(made)

    def handle_endtag(self, tag):
        while self._open and self._open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for one in self._open:
            one["text"] += data

    def all(self, *tags):
        return [one for one in self.elements if one["tag"] in tags]


@pytest.fixture(params=PAGES, ids=lambda name: name.replace(" ", "-"))
def outline(request):
    return Outline(PAGES[request.param])


def palette():
    """Colours of both schemes, by name."""
    light, dark = re.findall(r":root\{(.*?)\}", STYLE, re.DOTALL)
    return [dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", scheme)) for scheme in (light, dark)]


def luminance(color):
    """Relative luminance, WCAG 2.2."""
    digits = color[1:] if len(color) == 7 else "".join(2 * one for one in color[1:])
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """Contrast ratio, WCAG 2.2: black on white is 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_is_21():
    assert contrast("#000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_both_grounds_and_pictures_from_theirs(scheme):
    colors = palette()[scheme]
    for ground in ("ground", "raised"):
        poor = {name: contrast(colors[name], colors[ground]) for name in TEXT}
        assert min(poor.values()) >= 4.5, poor
    drawn = {name: contrast(colors[name], colors["ground"]) for name in DRAWN}
    assert min(drawn.values()) >= 3.0, drawn


def test_headings_begin_with_one_first_and_leave_no_level_out(outline):
    levels = [int(one["tag"][1]) for one in outline.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(one["text"].strip() for one in outline.all("h1", "h2", "h3"))


def test_landmarks_are_there_once_and_the_navigation_has_a_name(outline):
    assert [len(outline.all(tag)) for tag in ("header", "nav", "main")] == [1, 1, 1]
    assert outline.all("nav")[0]["aria-label"]
    assert outline.all("html")[0]["lang"] == "en"
    assert outline.all("title")[0]["text"].endswith("MoFa Advisor")


def test_the_keyboard_goes_from_top_to_bottom_and_may_skip_the_header(outline):
    assert not any("autofocus" in one or "accesskey" in one for one in outline.elements)
    stops = [one for one in outline.elements if "tabindex" in one]
    assert all(
        (one["tabindex"], one["class"], one["role"]) == ("0", "scroll", "group") for one in stops
    )
    assert all(one["aria-label"] for one in stops)
    first, *_ = outline.all("a", "summary", "button", "input")
    assert (first["text"], first["href"]) == ("Skip to the content", "#content")
    assert outline.all("main")[0]["id"] == "content"
    assert all(one["text"].strip() for one in outline.all("a", "summary"))
    assert ":focus-visible" in STYLE


def test_tables_say_what_their_cells_belong_to(outline):
    for cell in outline.all("th"):
        assert cell["scope"] in {"col", "row"}
    assert len(outline.all("thead")) == len(outline.all("table"))


def test_every_field_has_its_label_and_what_describes_it_is_there(outline):
    fields = outline.all("input", "select")
    labelled = {one["for"] for one in outline.all("label")}
    names = {one["id"] for one in outline.elements if "id" in one}
    assert {one["id"] for one in fields} == labelled
    assert {word for one in fields for word in one.get("aria-describedby", "").split()} <= names
    assert len(names) == len([one for one in outline.elements if "id" in one])


def test_pictures_say_in_words_what_they_show(outline):
    pictures = outline.all("svg")
    assert all(one["role"] == "img" and one["text"].strip() for one in pictures)


def test_nothing_runs_and_nothing_is_fetched(outline):
    assert not outline.all("script", "link", "img", "iframe", "object", "embed")
    assert all((one["method"], one["action"][0]) == ("get", "/") for one in outline.all("form"))
    assert not any(key.startswith("on") or key == "src" for one in outline.elements for key in one)
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_no_color_is_the_only_sign(outline):
    """Whatever is coloured good, warn or bad says so in words too."""
    marked = [one for one in outline.elements if one.get("class") in {"good", "warn", "bad"}]
    assert all(one["text"].strip() for one in marked)

"""The what-if page: its answers are the command's, bounded, and nothing in its address opens
a file.
"""

import http.client
import re
import threading
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from each import each

import mofa_model as mofa
from mofa_model.answers import what_if as page
from mofa_model.answers.what_if import FIRST, form_fields, what_if
from mofa_model.bands.odds import in_percent
from mofa_model.verbs.ui_server import WAITING, DeskServer, _page

ASKED = {**FIRST, "gpus": "16", "global_batch_size": "64"}


@pytest.fixture(scope="module")
def server():
    with DeskServer(0) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def get(server, path, host=None, method="GET", **more):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(
        method, path, headers={"Host": host or f"localhost:{server.server_port}", **more}
    )
    answer = connection.getresponse()
    told = answer.status, dict(answer.headers), answer.read().decode()
    connection.close()
    return told


def test_the_page_answers_what_python_answers():
    found = what_if(ASKED)
    assert found.errors == {}
    assert found.answer.to_dict() == mofa.advise(**ASKED).to_dict()
    html = _page(found, (), alone=False)
    step = found.answer.predicted.step_seconds.target
    assert f"<dd>{step:.4g} s" in html
    assert found.commands()[0] in html
    assert html.index("Odds") < html.index("<svg"), "odds stand before pictures"


def test_the_same_question_is_answered_from_memory(monkeypatch):
    first = what_if(ASKED).answer
    monkeypatch.setattr(page.advise, "of", lambda _: pytest.fail("it is known"))
    assert what_if(dict(reversed(ASKED.items()))).answer is first


def test_a_sweep_is_a_picture_a_table_and_a_command(monkeypatch):
    monkeypatch.setattr(page, "PATIENCE", 60.0)
    found = what_if({**ASKED, "vary": "mbs=1,2 failure_rate=0.005,0.01", "y": "ettr"})
    assert len(found.sweep.rows) == 4
    html = _page(found, (), alone=False)
    assert "mofa sweep" in found.commands()[1]
    assert html.count("<circle") == 4
    assert "failure rate 0.01" in html


def test_a_sweep_stops_where_a_page_would_take_too_long(monkeypatch):
    monkeypatch.setattr(page, "PATIENCE", 0.0)
    found = what_if({**ASKED, "vary": "mbs=1,2,4"})
    assert (len(found.sweep.rows), found.unasked) == (1, 2)
    assert "2 points more would take a page too long" in _page(found, (), alone=False)


@each(
    [
        ({"gpus": "63"}, "gpus", "63 cannot be right"),
        ({"gpus": ""}, "gpus", "is missing"),
        ({"model": "lama3-8b"}, "model", "did you mean llama3-8b"),
        ({"model": "/etc/passwd"}, "model", "unknown name"),
        ({"model": "org/name"}, "model", "unknown name"),
        ({"framework": "x"}, "framework", "unknown name"),
        ({"failure_rate": "often"}, "failure_rate", "give a number"),
        ({"hang": "soon"}, "hang", "is not a quantity"),
        ({"checkpoint_bandwidth": "0 B/s"}, "checkpoint_bandwidth", "above zero"),
        ({"current": "--config /etc/passwd"}, "current", "unknown name"),
        ({"current": "tp=3"}, "current", "3"),
        ({"planned": "tp=3"}, "planned", "3"),
        ({"current": "tp=2", "planned": "tp=2"}, "planned", "did not run yet"),
        ({"objective": "fame"}, "objective", "cost, throughput, time"),
        ({"vary": "gpus=63"}, "vary", "whole nodes"),
        ({"vary": "colour=red"}, "vary", "unknown name"),
        ({"vary": "model=/etc/passwd"}, "vary", "unknown name"),
        ({"vary": "tp=1,2 pp=1,2 cp=1,2"}, "vary", "one field, or two"),
        ({"vary": "interval=1..100:+1"}, "vary", "100 points"),
        ({"precision": "bf16" * 100}, "precision", "at most 200 characters"),
    ]
)
def test_what_cannot_be_right_stands_at_its_field(words, name, said):
    found = what_if({**ASKED, **words})
    assert list(found.errors) == [name], found.errors
    assert said in found.errors[name]
    html = _page(found, (), alone=False)
    assert f'id="{name}-error"' in html
    assert f'href="#{name}"' in html


def test_models_that_were_named_at_the_start_may_be_asked_for(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, '
        '"num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000}'
    )
    named = {**ASKED, "model": str(config)}
    assert list(what_if(named).errors) == ["model"]
    found = what_if(named, (str(config),))
    assert found.errors == {}
    assert str(config) in form_fields((str(config),))[0].choices


def test_a_planned_layout_has_its_own_chance_of_fitting_on_the_page_in_tables_and_in_rows():
    asked = {**ASKED, "planned": "tp=1,mbs=4,recompute=none"}
    asked.pop("vary", None)
    found = what_if(asked)
    assert found.errors == {}
    current = found.answer.advice.current
    assert current.is_planned
    html = _page(found, (), alone=False)
    assert "The planned layout" in html
    assert f"it fits with {in_percent(current.odds.fits)}" in unescape(html)
    assert "--planned" in found.commands()[0]
    assert any("beats planned" in str(one) for one in found.answer.tables)
    assert [row[0] for row in found.answer.records.rows if row[0] in {"planned", "today"}] == [
        "planned"
    ]


def test_an_empty_address_proposes_something_that_is_answered():
    found = what_if({})
    assert found.answer is None
    assert dict(found.values) == dict(FIRST)
    assert what_if(FIRST).errors == {}


def test_the_server_answers_and_forbids_scripts(server):
    status, headers, html = get(server, f"/?{urlencode(ASKED)}")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "form-action 'self'" in policy
    assert "script-src" not in policy
    assert "<script" not in html
    assert get(server, "/", method="HEAD")[2] == ""
    assert get(server, "/etc/passwd")[0] == 404
    assert get(server, "/", method="POST")[0] == 501


def test_a_page_elsewhere_cannot_use_the_server_by_a_name_of_its_own(server):
    assert get(server, "/", host=f"evil.example:{server.server_port}")[0] == 403
    assert get(server, "/", host=f"127.0.0.1:{server.server_port}")[0] == 200


def test_a_page_elsewhere_cannot_make_it_compute(server, monkeypatch):
    monkeypatch.setattr(page.advise, "of", lambda _: pytest.fail("nobody at the keyboard asked"))
    question = urlencode({**ASKED, "gpus": "8"})
    for site in ("cross-site", "same-site", "what-comes-next"):
        for path in ("/", "/export"):
            status, _, html = get(server, f"{path}?{question}", **{"Sec-Fetch-Site": site})
            assert status == 403
            assert "press the button" in html
            assert 'value="8"' in html, "the question is there, for whoever followed a link"
        assert get(server, "/", **{"Sec-Fetch-Site": site})[0] == 200, (
            "an empty form computes nothing"
        )


def test_what_somebody_opens_or_the_form_asks_is_computed(server):
    for site in ({}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}):
        assert get(server, f"/?{urlencode(ASKED)}", **site)[0] == 200


def test_no_address_loses_its_answer(server, capsys):
    """65 fields once ended the connection without a word, and a traceback on the terminal."""
    assert (
        get(server, f"/?{urlencode(ASKED)}&" + "&".join(f"x{i}=1" for i in range(5000)))[0] == 200
    )
    assert get(server, "/?" + "&" * 5000 + "gpu=%ff%00")[0] == 200
    assert get(server, "http://[/")[0] == 404
    assert capsys.readouterr().err == ""


def test_the_file_holds_the_answer_and_asks_nobody(server):
    status, headers, html = get(server, f"/export?{urlencode(ASKED)}")
    assert status == 200
    assert (
        headers["Content-Disposition"]
        == 'attachment; filename="what-if-llama3-8b-16-h100-sxm.html"'
    )
    assert "Where the time of a step goes" in html
    assert not re.search(r"<form|<link|src=|url\(|href=\"(?!#)", html)


def test_text_of_an_address_stays_text(server):
    html = get(server, "/?" + urlencode({"model": '"><script>x</script>', "gpu": "<b>"}))[2]
    tags = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, given: tags.append((tag, dict(given).get("value")))
    reader.feed(html)
    assert not {"script", "b"} & {tag for tag, _ in tags}
    assert {("input", '"><script>x</script>'), ("input", "<b>")} <= set(tags)


def test_too_many_that_ask_at_once_are_told_to_come_again(server):
    for _ in range(WAITING):
        assert server._places.acquire(blocking=False)
    try:
        assert get(server, "/")[0] == 503
    finally:
        for _ in range(WAITING):
            server._places.release()
    assert get(server, "/")[0] == 200


def test_the_verb_says_where_it_is_and_refuses_a_port_that_is_taken(server, capsys):
    from mofa_model import cli

    assert cli.main(["ui", "--port", str(server.server_port)]) == 2
    assert (
        f"--port: {server.server_port} cannot be right; address already in use"
        in capsys.readouterr().err
    )
    assert cli.main(["ui", "--port", "70000"]) == 2
    assert cli.main(["ui", "--model", "no-such-model"]) == 2

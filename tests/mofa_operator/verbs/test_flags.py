"""Flags and variables are the settings' fields, and what cannot be right is named."""

from __future__ import annotations

import asyncio
import json
from argparse import ArgumentParser
from dataclasses import asdict

import pytest

from mofa_model.cli import main
from mofa_model.errors import InputError
from mofa_operator.settings import OperatorSettings
from mofa_operator.verbs import operator


def settings(*given, **environment):
    parser = ArgumentParser(exit_on_error=False)
    operator.add_flags(parser)
    return operator.settings_of(parser.parse_args(given), environment)


def leaves(value):
    return sum(map(leaves, value.values())) if isinstance(value, dict) else 1


def test_every_field_has_one_flag_and_help_from_its_docstring():
    made = operator.flags()
    assert len(made) == leaves(asdict(OperatorSettings())) == len({flag.name for flag in made})
    assert all(flag.help.endswith((".", "]")) for flag in made)
    names = {flag.name for flag in made}
    assert {
        "prometheus-url",
        "writes-per-second",
        "resync",
        "lease-enabled",
        "metrics-port",
        "api-timeout",
    } <= names


def test_without_flags_and_variables_the_defaults_hold():
    assert settings() == OperatorSettings()


def test_a_flag_counts_more_than_its_variable_and_that_more_than_the_default():
    assert settings().loop.resync == 600.0
    assert settings(MOFA_RESYNC="30").loop.resync == 30.0
    assert settings("--resync=20", MOFA_RESYNC="30").loop.resync == 20.0
    assert settings("--no-dry-run", MOFA_DRY_RUN="true").dry_run is False


def test_lists_may_be_repeated_or_given_with_commas_but_a_header_keeps_its_commas():
    made = settings(
        "--namespace=a,b",
        "--namespace",
        "c",
        "--prometheus-header=Accept=x, y",
        MOFA_KINDS="JobSet,RayJob",
    )
    assert made.namespace == ("a", "b", "c")
    assert made.kinds == ("JobSet", "RayJob")
    assert made.prometheus.header == ("Accept=x, y",)
    assert settings(MOFA_PROMETHEUS_HEADER="A=1,2\nB=3").prometheus.header == ("A=1,2", "B=3")


@pytest.mark.parametrize(
    "given, environment, message",
    [
        (["--resync=0"], {}, "--resync: '0' cannot be right; give a number above zero"),
        (["--resync=nan"], {}, "--resync"),
        (
            [],
            {"MOFA_WORKERS": "1.5"},
            "MOFA_WORKERS: '1.5' cannot be right; give a whole number above zero",
        ),
        ([], {"MOFA_PAGE": "maybe"}, "MOFA_PAGE: 'maybe' cannot be right; give true or false"),
        (["--kinds=Jobset"], {}, "--kinds: unknown name 'Jobset'; did you mean JobSet?"),
        (["--log-format=xml"], {}, "--log-format: unknown name 'xml'"),
        (["--prometheus-flavour=cortex"], {}, "--prometheus-flavour: unknown name 'cortex'"),
        (["--metrics-port=70000"], {}, "--metrics-port: 70000 cannot be right"),
    ],
)
def test_what_cannot_be_right_is_named_with_what_would_be(given, environment, message):
    with pytest.raises(InputError, match="^" + message.replace("(", r"\(").replace("?", r"\?")):
        settings(*given, **environment)


def test_port_zero_is_any_free_port():
    assert settings("--metrics-port=0").serve.metrics_port == 0


def test_print_settings_shows_what_would_be_in_force_but_no_secret_header(capsys):
    code = main(
        [
            "operator",
            "--print-settings",
            "--settle=3",
            "--prometheus-header=Authorization=Bearer secret",
        ]
    )
    assert code == 0
    text = capsys.readouterr().out
    shown = json.loads(text)
    assert shown["loop"]["settle"] == 3.0
    assert "secret" not in text


def test_a_kubeconfig_that_is_not_there_is_bad_input(capsys):
    assert main(["operator", "--kubeconfig=/no/such/file"]) == 2
    assert capsys.readouterr().err == "mofa operator: /no/such/file: there is no such kubeconfig\n"


def test_an_api_server_that_does_not_answer_is_one_line_and_exit_code_4(
    tmp_path, capsys, monkeypatch
):
    from mofa_operator.control import logs, run, shutdown

    monkeypatch.setattr(logs, "set_up", lambda form, *, verbose: None)
    monkeypatch.setattr(shutdown, "PATIENCE", 0.0)
    monkeypatch.setattr(run.Operator, "_warm", lambda self: asyncio.sleep(3600))
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", "")
    ports = ["--metrics-port=0", "--health-port=0", "--address=127.0.0.1"]
    assert main(["operator", f"--kubeconfig={path}", *ports]) == 4
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("mofa operator: Kubernetes at http://127.0.0.1:9: ")

"""A model by its id on a hub: fetched once from a server that speaks the hub's protocol, and every
refusal in one line.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from mofa_model import presets
from mofa_model.errors import InputError, MofaError, SourceUnreachable
from mofa_model.presets.models import from_config

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128256,
}
REFUSALS = {
    "/org/gated/": (403, "GatedRepo"),
    "/org/bare/": (404, "EntryNotFound"),
    "/org/broken/": (500, ""),
}


class Hub(BaseHTTPRequestHandler):
    """What a hub answers to those who ask for a file of a model."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        if not self.path.endswith("/config.json"):
            self.send_error(404)
            return
        self.asked.append(self.path)
        data = json.dumps(CONFIG).encode() if self.path.startswith("/org/model/") else b""
        status, code = (
            (200, "")
            if data
            else next(
                (found for start, found in REFUSALS.items() if self.path.startswith(start)),
                (401, "RepoNotFound"),
            )
        )
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Error-Code", code) if code else None
        self.send_header("ETag", '"one"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A server, and the library told to ask it and to keep what it gets in a folder of
    this test.
    """
    constants = pytest.importorskip("huggingface_hub.constants")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(
        target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}
    ).start()
    monkeypatch.setattr(Hub, "asked", [])
    endpoint = f"http://127.0.0.1:{server.server_port}"
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, endpoint)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield server
    server.server_close()
    server.shutdown()


def test_a_model_is_fetched_once_and_then_read_from_the_cache(hub, monkeypatch):
    read = presets.model_named("org/model")
    assert read == from_config(CONFIG)
    asked = len(Hub.asked)
    assert asked == 3  # two questions whether it is there, one for what it says
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert presets.model_named("org/model") == read
    assert len(Hub.asked) == asked


@pytest.mark.parametrize(
    "name, kind, why",
    [
        ("org/gated", InputError, "accepts its terms"),
        ("org/bare", InputError, "no config.json"),
        ("org/nothing", InputError, "the hub has no such model"),
        ("org/broken", SourceUnreachable, "500 Internal Server Error"),
        ("org/a--b..c", InputError, "ORGANISATION/NAME"),
    ],
)
def test_what_the_hub_does_not_give_is_said_in_one_line_that_names_the_other_way(
    hub, name, kind, why
):
    with pytest.raises(MofaError) as caught:
        presets.model_named(name)
    assert isinstance(caught.value, kind)
    said = str(caught.value)
    assert said.startswith("--model: ")
    assert why in said
    assert "\n" not in said


def test_a_near_miss_of_a_known_id_suggests_the_preset_and_the_file(hub):
    with pytest.raises(InputError, match=r"did you mean llama3-8b.*--model config\.json"):
        presets.model_named("meta-llama/Llama-3.1-8C")


def test_offline_says_so(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SourceUnreachable, match="HF_HUB_OFFLINE forbids"):
        presets.model_named("org/model")
    assert Hub.asked == []


def test_a_hub_that_is_down_says_so_at_once(hub):
    hub.shutdown()
    hub.server_close()
    with pytest.raises(SourceUnreachable, match="did not answer"):
        presets.model_named("org/model")


def test_a_preset_by_its_id_on_the_hub_asks_nobody(hub):
    assert presets.model_named("meta-llama/Llama-3.1-8B") == presets.model("llama3-8b")
    assert Hub.asked == []


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install '\.\[hub\]', in a clone"):
        presets.model_named("org/model")


def test_a_command_takes_an_id(hub, tmp_path):
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path),
    }
    words = "explain --gpu h100 --gpus 8 --global-batch 8 --seq 4k --strategy dp=8 -o json --model"

    command = [Path(sys.executable).parent / "mofa", *words.split(), "org/model"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)

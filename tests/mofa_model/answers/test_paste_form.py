"""The page that takes a paste or files: the real server over HTTP, its answer, its launch, and what
it refuses.
"""

import http.client
import re
import threading
from html import unescape

import pytest

from mofa_model.answers.advise_tables import LONGEST
from mofa_model.answers.paste_form import MOST, paste_form
from mofa_model.answers.what_if import FIRST, what_if
from mofa_model.pasted.reading import PastedText
from mofa_model.verbs.ui_server import DeskServer

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --gres=gpu:h100:8
TP=8
srun python pretrain_gpt.py --tensor-model-parallel-size $TP --num-layers 16 --hidden-size 2048 --bf16 \\
  --num-attention-heads 16 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --use-distributed-optimizer
"""
CONFIG = (
    '{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,'
    ' "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000}'
)
EDGE = "edge"


@pytest.fixture(scope="module")
def server():
    with DeskServer(0) as desk:
        running = threading.Thread(target=desk.serve_forever, daemon=True)
        running.start()
        yield desk
        desk.shutdown()
        running.join()


def post(server, fields, files=(), path="/paste", **headers):
    """What the server says to a form as a browser sends it: status and page."""
    parts = [
        f'--{EDGE}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        for name, text in fields.items()
    ] + [
        f'--{EDGE}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n'
        f"Content-Type: text/plain\r\n\r\n{text}\r\n"
        for name, text in files
    ]
    body = "".join([*parts, f"--{EDGE}--\r\n"]).encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={EDGE}"}
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    link.request("POST", path, body, kind | headers)
    answer = link.getresponse()
    page = unescape(answer.read().decode())
    link.close()
    return answer.status, page


def test_a_dropped_script_is_answered_in_twelve_lines_and_given_back_with_the_launch_in_it(server):
    status, page = post(server, {}, [("../job.sbatch", SCRIPT)])
    assert status == 200
    brief = re.search(r'<dl class="brief">(.*?)</dl>', page, re.DOTALL)[1]
    words = re.findall(r"<dt>(.*?)</dt>", brief)
    assert 6 <= len(words) <= LONGEST
    assert words[:3] == ["verdict", "read", "layout"]
    files = dict(
        re.findall(r"<summary><code>(.*?)</code></summary><pre><code>(.*?)</code>", page, re.DOTALL)
    )
    assert {"job.sbatch", "launch.sh", "launch-smoke.sh", "README.md"} <= files.keys()
    assert "srun python pretrain_gpt.py" in files["job.sbatch"]
    assert "TP=8" not in files["job.sbatch"]
    assert "open" not in re.findall(r"<details[^>]*>", page)[0]


def test_a_few_words_and_a_model_beside_fields_are_answered(server):
    status, page = post(server, {"pasted": "llama3 8b on 8 h100, seq 4k"})
    assert status == 200
    assert "llama3-8b on 8 h100-80gb-sxm" in page
    status, page = post(server, {"gpu": "h100", "gpus": "8"}, [("config.json", CONFIG)])
    assert (status, "llama on 8 h100-80gb-sxm" in page) == (200, True)
    assert "/tmp/" not in page


def test_what_is_missing_stands_at_its_field_and_the_paste_stays(server):
    page = post(server, {"pasted": SCRIPT.replace(" --gres=gpu:h100:8", "")})[1]
    assert 'href="#gpu"' in page
    assert "is missing; for example h100" in page
    assert "srun python pretrain_gpt.py" in page


def test_a_name_in_a_text_opens_no_file_and_no_connection(monkeypatch):
    from mofa_model import files, presets

    def never(*given, **words):
        raise AssertionError(given)

    monkeypatch.setattr(presets, "model_named", never)
    monkeypatch.setattr(files, "read_text", never)
    text = "torchrun --nproc_per_node 8 t.py --model_name_or_path {} --max_length 4096 --per_device_train_batch_size 1"
    for named, said in (("/etc/passwd", "is missing"), ("some-org/some-model", "name a preset")):
        found = paste_form({"pasted": text.format(named), "gpu": "h100"}, [])
        assert said in found.errors["model"]
    found = paste_form(
        {"gpu": "h100", "gpus": "8"}, [PastedText("kind: Job\napiVersion: v1\n", "x")]
    )
    assert "mofa advise FILE" in str(found.errors)


def test_forms_of_other_sites_and_forms_that_are_too_long_are_refused(server):
    asked = {"pasted": "llama3 8b on 8 h100"}
    assert post(server, asked, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert post(server, asked, Origin="http://evil.example")[0] == 403
    assert post(server, asked, Origin="null")[0] == 403
    assert post(server, {}, Origin="null", **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert post(server, asked, Host="evil.example")[0] == 403
    assert post(server, asked, path="/export")[0] == 501
    assert post(server, asked, **{"Content-Type": "text/plain"})[0] == 415
    assert post(server, asked, **{"Content-Length": str(MOST + 1)})[0] == 413


def test_the_what_if_form_takes_a_trainers_flags_as_todays_layout():
    flags = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel"
    found = what_if({**FIRST, "current": flags, "gpus": "16"})
    assert found.errors == {}
    today = found.answer.advice.current.strategy
    assert (today.tp, today.pp, today.dp, today.sequence_parallel) == (4, 2, 2, True)

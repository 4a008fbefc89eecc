"""Files of all kinds: sound ones are read to the last event, others end in one line."""

import gzip
import json
import random

import pytest
from trace_generator import Setup, Stack, World

from mofa_lab.traces import reader
from mofa_lab.traces.columns import load
from mofa_model.cli import main
from mofa_model.errors import BadFile


def kernel(i, **more):
    said = {"stream": 7, "correlation": i + 1, **more}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "pid": 0,
        "tid": 7,
        "ts": 10 * i,
        "dur": 5,
        "args": said,
    }


def events(n):
    return [kernel(i) for i in range(n)]


def test_a_file_larger_than_a_batch_is_cut_between_events(write, monkeypatch):
    monkeypatch.setattr(reader, "BATCH", 1000)
    assert len(load(write(events(500))).events) == 500


def test_a_cut_inside_a_nested_list_or_a_string_is_not_taken(write, monkeypatch):
    monkeypatch.setattr(reader, "BATCH", 700)
    odd = [kernel(i, nested=[{"a": 1}, {"b": "}, {"}, {"c": '"]}'}]) for i in range(60)]
    assert len(load(write(odd)).events) == 60


def test_a_bare_list_and_keys_after_the_events_are_read(tmp_path, write):
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(events(3)))
    assert len(load(bare).events) == 3
    path = tmp_path / "tail.json"
    document = {
        "traceEvents": events(3),
        "other": [{"a": 1}, {"b": 2}],
        "distributedInfo": {"rank": 5},
    }
    path.write_text(json.dumps(document))
    assert (len(load(path).events), load(path).rank) == (3, 5)


def test_what_c_prints_for_no_number_does_not_stop_the_reader(tmp_path):
    text = json.dumps({"traceEvents": events(3)}).replace(
        '"correlation": 2', '"correlation": 2, "x": -nan'
    )
    path = tmp_path / "nan.json"
    path.write_text(text)
    assert len(load(path).events) == 3


def test_events_without_a_usable_time_are_dropped_and_counted(write):
    trace = load(write([*events(2), kernel(3) | {"ts": "soon"}, kernel(4) | {"dur": -1}]))
    assert (len(trace.events), trace.dropped) == (2, 2)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("hello", "is not JSON"),
        ('{"a": 1}', "without a list traceEvents"),
        ('{"a": 1, "tra', "truncated"),
        ('{"traceEvents": []}', "holds no event"),
        ('{"traceEvents": [', "truncated"),
        ('{"traceEvents": [1, null, "x", {"ph": 3}]}', "none of its 4 events"),
        ('[{"ph": "M", "name": "process_name"}]', "none of its 1 events"),
        ("\x00\x01\x02", "is not JSON"),
    ],
)
def test_a_file_that_is_no_trace_ends_in_one_line(tmp_path, text, why):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=why):
        load(path)


def test_a_small_packed_trace_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "LONGEST", 2**20)
    monkeypatch.setattr(reader, "BATCH", 2**18)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b'{"ph": "i"},' * 2**18 + b"{}]}"))
    with pytest.raises(BadFile, match="unpacks to more than 200 times its size"):
        load(path)


def test_missing_folder_and_damaged_files_end_in_one_line(tmp_path):
    damaged = tmp_path / "damaged.json.gz"
    damaged.write_bytes(gzip.compress(json.dumps({"traceEvents": events(900)}).encode())[:-900])
    for path in (tmp_path / "none.json", tmp_path, damaged):
        with pytest.raises(BadFile):
            load(path)


def test_a_file_cut_at_any_byte_is_refused_or_read_whole(tmp_path):
    whole = json.dumps(
        {"deviceProperties": [{"name": "X"}], "traceEvents": events(2), "tail": {"a": [1]}}
    ).encode()
    path = tmp_path / "cut.json"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(BadFile) as caught:
            load(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(40))
def test_bytes_changed_at_random_never_give_a_traceback(tmp_path, capsys, seed):
    chance = random.Random(seed)
    data = bytearray(json.dumps({"traceEvents": events(40)}).encode())
    for _ in range(chance.randrange(1, 12)):
        data[chance.randrange(len(data))] = chance.choice(b'{}[]",:0919eE-\\\x00\xff\xc3 nN')
    path = tmp_path / "fuzzed.json"
    path.write_bytes(data)
    for action in ("inspect", "replay"):
        picture = tmp_path / "picture.svg"
        code = main(["trace", action, str(path), "--picture", str(picture)])
        said = capsys.readouterr()
        assert code in {0, 2}
        if code == 2:
            assert said.out == ""
            assert said.err.count("\n") == 1
            assert not picture.exists()


def test_the_same_file_twice_is_refused(write, capsys):
    path = str(write(events(2)))
    assert main(["trace", "inspect", path, path]) == 2
    assert "once" in capsys.readouterr().err


ODD = [None, True, -1, 0, 1e308, 2**70, "", "x", "\u0000", [], [1], {}, {"a": 1}, "0x1f", -1e-9]


@pytest.mark.parametrize("seed", range(40))
def test_fields_of_any_kind_never_give_a_traceback(tmp_path, capsys, seed):
    chance = random.Random(seed)
    (path,) = (
        World(Setup(layers=1, micro_batches=2, hidden=256, heads=2, ffn=512), Stack())
        .run()
        .write(tmp_path, [0])
    )
    document = json.loads(path.read_text())
    for event in chance.sample(document["traceEvents"], 40):
        target = event if chance.random() < 0.5 or not event.get("args") else event["args"]
        target[chance.choice(list(target))] = chance.choice(ODD)
    document[chance.choice(list(document))] = chance.choice([document["traceEvents"], *ODD])
    path.write_text(json.dumps(document))
    asked = [
        "--model",
        "llama3.1-8b",
        "--gpu",
        "h100",
        "--seq",
        "4096",
        "--global-batch",
        "2",
        "--strategy",
        "dp=1",
    ]
    for action, further in (("inspect", []), ("replay", []), ("predict", asked)):
        code = main(["trace", action, str(path), *further])
        said = capsys.readouterr()
        assert code in {0, 2}, said.err
        assert code == 0 or (said.out == "" and said.err.count("\n") == 1)

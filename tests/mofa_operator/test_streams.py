"""A watch's bytes: events come out as they went in, however they are cut, and what is no event is
an error of ours to know.
"""

import asyncio

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mofa_operator.api import events
from mofa_operator.api_errors import Busy, Expired, Refused


def body(name, version="7"):
    return {"metadata": {"name": name, "resourceVersion": version}, "spec": {"text": "ä\nö"}}


def read(chunks):
    async def given_chunks():
        for chunk in chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    async def main():
        return [one async for one in events(given_chunks(), "/apis/x?watch=1")]

    return asyncio.run(main())


def line(what, body):
    return orjson.dumps({"type": what, "object": body}) + b"\n"


@given(st.lists(st.integers(1, 400), max_size=12))
def test_events_come_out_whole_however_their_bytes_are_cut(cuts):
    wanted = [
        ("ADDED", body("a")),
        ("MODIFIED", body("b" * 300)),
        ("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
        ("DELETED", body("a")),
    ]
    raw, chunks = b"".join(line(*one) for one in wanted), []
    for cut in cuts:
        chunks.append(raw[:cut])
        raw = raw[cut:]
    assert read([*filter(None, chunks), raw] if raw else filter(None, chunks)) == wanted


def test_half_an_event_is_none():
    assert read([line("ADDED", body("a")), line("ADDED", body("b"))[:20]]) == [("ADDED", body("a"))]


@pytest.mark.parametrize(
    "code, error",
    [(410, Expired), (403, Refused), (500, Busy), (504, Busy), (None, Busy), ("410", Busy)],
)
def test_an_error_in_the_midst_is_what_its_code_says(code, error):
    with pytest.raises(error):
        read(
            [
                line("ADDED", body("a")),
                line("ERROR", {"kind": "Status", "code": code, "message": "no"}),
            ]
        )


@pytest.mark.parametrize(
    "garbage",
    [b"<html>", b"null", b"[]", b'"x"', b'{"type":"ADDED"}', b'{"type":"ADDED","object":[]}',
     b'{"type":"ADDED","object":{"metadata":{}}}', b'{"type":"NEW","object":{"metadata":{"name":"a"}}}'],
)  # fmt: skip
def test_what_is_no_event_is_told_as_such(garbage):
    with pytest.raises(Busy, match="not a Kubernetes watch"):
        read([garbage + b"\n"])


@pytest.mark.parametrize(
    "error", [aiohttp.ClientPayloadError("cut"), TimeoutError(), ConnectionResetError()]
)
def test_a_connection_that_breaks_is_busy(error):
    with pytest.raises(Busy, match="WATCH /apis/x"):
        read([line("ADDED", body("a")), error])

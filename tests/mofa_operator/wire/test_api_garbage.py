"""The session with the API server where what answers is a gateway, a dying server, or nobody."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web
from faults.loopback import Loopback, hang_up
from kubernetes import client

from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError, Busy
from mofa_operator.credentials import Credentials
from mofa_operator.keys import NODE, TRAINING_JOB
from mofa_operator.settings import ApiSettings

BODY = {"metadata": {"name": "a", "uid": "1"}}


@contextlib.asynccontextmanager
async def session(url, **settings):
    configuration = client.Configuration()
    configuration.host = url
    configuration.api_key["BearerToken"] = "Bearer secret"
    async with Api(Credentials(configuration), ApiSettings(**settings)) as api:
        yield api


def asked(handle, use, **settings):
    """What a use of the session comes to, against a server that answers so."""
    seen = []

    async def counted(request):
        seen.append((request.method, request.path, dict(request.headers), await request.read()))
        return await handle(request)

    async def whole(url):
        async with session(url, **settings) as api:
            return await use(api)

    with Loopback(counted) as server:
        return asyncio.run(whole(server.url)), seen


def refused(handle, use, **settings):
    async def caught(api):
        with pytest.raises(ApiError) as found:
            await use(api)
        return found.value

    return asked(handle, caught, **settings)


async def read(api):
    return await api.get(TRAINING_JOB, "ml", "a")


async def write(api):
    return await api.apply(TRAINING_JOB, "ml", "a", BODY)


async def listed(api):
    return [one async for one in api.list(NODE)]


def says(text, status=200, **headers):
    async def handle(_):
        return web.Response(
            text=text, status=status, headers=headers, content_type="application/json"
        )

    return handle


@pytest.mark.parametrize("use", [read, write, listed])
@pytest.mark.parametrize(
    "text", ["[]", "null", '"ok"', "1", "{}", '{"metadata": null}', '{"metadata": []}', "<html>"]
)
def test_what_is_no_object_of_kubernetes_is_a_busy_server(use, text):
    error, _ = refused(says(text), use)
    assert isinstance(error, Busy)


@pytest.mark.parametrize("items", [{"a": 1}, [None], [{}], [{"metadata": {}}], ["a"], 7])
def test_what_is_no_list_is_a_busy_server_and_no_end_of_all_objects(items):
    error, _ = refused(says(json.dumps({"metadata": {}, "items": items})), listed)
    assert isinstance(error, Busy)


def test_an_empty_list_may_be_null():
    found, _ = asked(says('{"metadata": {}, "items": null}'), listed)
    assert found == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nobody_is_followed_elsewhere_with_our_token(status):
    error, seen = refused(says("", status, Location="/login"), write)
    assert isinstance(error, Busy)
    assert [(method, path) for method, path, _, _ in seen] == [
        ("PATCH", "/apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs/a")
    ]


def half(body):
    async def handle(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = 2 * len(body)
        await response.prepare(request)
        await response.write(body)
        return await hang_up(request)

    return handle


@pytest.mark.parametrize("use", [read, write, listed])
def test_an_answer_that_breaks_off_is_a_busy_server(use):
    error, seen = refused(half(b'{"metadata": {"name": "a"'), use)
    assert isinstance(error, Busy)
    assert len(seen) == 1  # who asked decides when to ask again


def test_a_server_that_hangs_up_is_a_busy_server():
    error, _ = refused(hang_up, write)
    assert isinstance(error, Busy)


@pytest.mark.parametrize(
    "wait, seconds", [("7", 7.0), ("-1", None), ("1e9", None), ("soon", None), ("0", 0.0)]
)
def test_only_a_number_of_seconds_is_a_time_to_wait(wait, seconds):
    error, _ = refused(says("{}", 503, **{"Retry-After": wait}), read)
    assert error.retry_after == seconds


def test_a_page_of_an_error_is_told_in_part():
    error, _ = refused(says("<html>" + "x" * 1_000_000, 502), read)
    assert len(str(error)) < 500


def test_a_trickle_of_bytes_ends_at_the_timeout():
    async def trickle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    error, _ = refused(trickle, read, timeout=0.3)
    assert isinstance(error, Busy)


def test_characters_that_yaml_does_not_take_are_escaped_on_the_wire():
    body = {"metadata": {"name": "a", "annotations": {"b": "é \x7f \x80 \ufeff \ufffe 🙂"}}}

    async def use(api):
        return await api.apply(TRAINING_JOB, "ml", "a", body)

    _, seen = asked(says(json.dumps(BODY)), use)
    raw = seen[0][3]
    assert json.loads(raw) == body
    assert b"\\u007f \\u0080 \\ufeff \\ufffe" in raw
    assert "é".encode() in raw

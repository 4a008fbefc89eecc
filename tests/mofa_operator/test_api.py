"""The session with the API server, against a server of our own that answers what it is told to."""

import asyncio
import contextlib
import json

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes import client

from mofa_model.errors import SourceUnreachable
from mofa_model.kinds import MPI_JOB
from mofa_operator.api import Api, TokenBucket
from mofa_operator.api_errors import Busy, Conflict, Gone, Invalid, Refused, Taken
from mofa_operator.credentials import Credentials
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB
from mofa_operator.settings import ApiSettings


class Answers:
    """A server that gives prepared answers, one after another, and remembers what it was asked."""

    def __init__(self, *answers):
        self.left = list(answers)
        self.asked = []

    async def __call__(self, request):
        body = await request.read()
        self.asked.append((request.method, str(request.rel_url), dict(request.headers), body))
        status, said, *headers = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        raw = said if isinstance(said, bytes) else orjson.dumps(said)
        return web.Response(status=status, body=raw, headers=dict(headers[0]) if headers else None)


@contextlib.asynccontextmanager
async def session(answers, **settings):
    async def answer(request):
        return await answers(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        configuration = client.Configuration()
        configuration.host = str(server.make_url("")).rstrip("/")
        configuration.api_key["BearerToken"] = "Bearer one"
        async with Api(Credentials(configuration), ApiSettings(**settings)) as api:
            yield api


def run(answers, use, **settings):
    async def whole():
        async with session(answers, **settings) as api:
            return await use(api)

    return asyncio.run(whole())


def failure(message="no", **more):
    return {"kind": "Status", "message": message, **more}


@pytest.mark.parametrize(
    "status, message, error",
    [
        (404, 'trainingjobs.mofa.dev "a" not found', Gone),
        (
            409,
            "uid mismatch: the provided object specified uid 1, and no existing object was found",
            Gone,
        ),
        (409, "Precondition failed: UID in precondition: 1, UID in object meta: 2", Gone),
        (422, 'metadata.uid: Invalid value: "1": field is immutable', Gone),
        (409, "the object has been modified", Conflict),
        (403, "cannot patch", Refused),
        (422, "spec.nodes: Invalid value", Invalid),
        (400, "bad request", Invalid),
        (413, "request is too large", Invalid),
        (401, "Unauthorized", Busy),
        (429, "too many requests", Busy),
        (500, "internal error", Busy),
        (503, "apiserver is shutting down", Busy),
    ],
)
def test_each_refusal_is_one_of_a_few_errors(status, message, error, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")  # a 401 reads the credentials again

    async def use(api):
        with pytest.raises(error) as caught:
            await api.apply(TRAINING_JOB, "ml", "a", {})
        return str(caught.value)

    said = run(Answers((status, failure(message))), use)
    assert (
        said == f"PATCH /apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs/a: {message} ({status})"
    )


@pytest.mark.parametrize("reason, error", [("AlreadyExists", Taken), ("Conflict", Conflict)])
def test_a_name_that_is_taken_is_not_a_quota_that_was_used_meanwhile(reason, error):
    async def use(api):
        with pytest.raises(Conflict) as caught:
            await api.create(TRAINING_JOB, "ml", {})
        return type(caught.value)

    assert run(Answers((409, failure(reason=reason))), use) is error


def test_an_apply_says_who_owns_it_and_goes_by_force():
    answers = Answers((200, {"metadata": {}}))
    run(answers, lambda api: api.apply(TRAINING_JOB, "ml", "a", {"status": {"x": 1}}, status=True))
    ((method, url, headers, body),) = answers.asked
    assert method == "PATCH"
    assert (
        url
        == "/apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs/a/status?fieldManager=mofa-advisor&force=true"
    )
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert headers["Authorization"] == "Bearer one"
    assert json.loads(body) == {"status": {"x": 1}}


def test_every_other_verb_has_its_method_and_path():
    answers = Answers((200, {"metadata": {}}))

    async def use(api):
        await api.merge(CLUSTER_PROFILE, "", "east", {"metadata": {"annotations": {"a": None}}})
        await api.create(TRAINING_JOB, "ml", {})
        await api.replace(TRAINING_JOB, "ml", "a", {})
        await api.get(NODE, "", "n1")

    run(answers, use)
    assert [(method, url.partition("?")[0]) for method, url, _, _ in answers.asked] == [
        ("PATCH", "/apis/mofa.dev/v1alpha1/clusterprofiles/east"),
        ("POST", "/apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs"),
        ("PUT", "/apis/mofa.dev/v1alpha1/namespaces/ml/trainingjobs/a"),
        ("GET", "/api/v1/nodes/n1"),
    ]


def test_what_does_not_exist_is_none():
    assert run(Answers((404, failure())), lambda api: api.get(TRAINING_JOB, "ml", "a")) is None


def page(*names, more=""):
    return {
        "metadata": {"continue": more},
        "items": [{"metadata": {"name": name}} for name in names],
    }


async def names(api, **given):
    return [item["metadata"]["name"] async for item in api.list(TRAINING_JOB, **given)]


def test_a_list_comes_page_by_page():
    answers = Answers((200, page("a", "b", more="x y")), (200, page("c")))
    assert run(answers, names) == ["a", "b", "c"]
    assert [url for _, url, _, _ in answers.asked] == [
        "/apis/mofa.dev/v1alpha1/trainingjobs?limit=500",
        "/apis/mofa.dev/v1alpha1/trainingjobs?limit=500&continue=x+y",
    ]


def test_items_of_a_list_say_what_they_are():
    async def use(api):
        return [
            item async for item in api.list(TRAINING_JOB, namespace="ml", label_selector="team=a")
        ]

    answers = Answers((200, page("a")))
    (item,) = run(answers, use)
    assert (item["apiVersion"], item["kind"]) == ("mofa.dev/v1alpha1", "TrainingJob")
    assert answers.asked[0][1].endswith(
        "/namespaces/ml/trainingjobs?limit=500&labelSelector=team%3Da"
    )


def test_a_list_whose_continuation_expired_begins_again():
    expired = (410, failure("the provided continue parameter is too old"))
    answers = Answers(
        (200, page("a", more="x")), expired, (200, page("a", more="y")), (200, page("b"))
    )
    assert run(answers, names) == ["a", "a", "b"]  # twice is harmless; missing one would not be


def test_a_kind_that_the_cluster_does_not_have_cannot_be_listed():
    with pytest.raises(Gone):
        run(Answers((404, b"404 page not found")), names)


def test_a_kind_is_found_in_the_version_that_the_cluster_serves_and_written_there():
    """The training operator serves MPIJobs in v1 alone; what a list has found every other
    call knows.
    """
    answers = Answers((404, b"404 page not found"), (200, page("a")), (200, {"metadata": {}}))

    async def use(api):
        assert [item["apiVersion"] async for item in api.list(MPI_JOB)] == [MPI_JOB.api_version]
        await api.apply(
            MPI_JOB, "ml", "a", {"apiVersion": MPI_JOB.api_version, "metadata": {"name": "a"}}
        )
        await api.patch(MPI_JOB, "ml", "a", [])
        await api.get(MPI_JOB, "ml", "a")

    run(answers, use)
    v1, job = "/apis/kubeflow.org/v1", "/apis/kubeflow.org/v1/namespaces/ml/mpijobs/a"
    paths = [url.partition("?")[0] for _, url, _, _ in answers.asked]
    assert paths == ["/apis/kubeflow.org/v2beta1/mpijobs", f"{v1}/mpijobs", job, job, job]
    assert json.loads(answers.asked[2][3])["apiVersion"] == "kubeflow.org/v1"


def test_a_version_that_goes_is_looked_for_in_the_others_again():
    answers = Answers((404, failure()), (200, page("a")), (404, failure()), (200, page("b")))

    async def use(api):
        return [[item["metadata"]["name"] async for item in api.list(MPI_JOB)] for _ in range(2)]

    assert run(answers, use) == [["a"], ["b"]]
    versions = [url.split("/")[3] for _, url, _, _ in answers.asked]
    assert versions == ["v2beta1", "v1", "v1", "v2beta1"]


def test_a_server_that_asks_for_a_rest_gets_it():
    answers = Answers((429, failure(), {"Retry-After": "1"}), (200, {"metadata": {}}))

    async def use(api):
        with pytest.raises(Busy) as caught:
            await api.merge(TRAINING_JOB, "ml", "a", {})
        assert caught.value.retry_after == 1.0
        return api.bucket.next_turn()  # whoever writes next waits, reads do not

    assert 0.5 < run(answers, use) <= 1.0


@pytest.mark.parametrize("raw", [b"<html>proxy</html>", b"", b"\xff\xfe"])
def test_an_answer_that_is_no_json_is_a_busy_server(raw):
    with pytest.raises(Busy, match="not JSON"):
        run(Answers((200, raw)), lambda api: api.get(NODE, "", "n"))
    with pytest.raises(Busy):
        run(Answers((502, raw)), lambda api: api.get(NODE, "", "n"))


def test_nobody_there_is_a_busy_server():
    configuration = client.Configuration()
    configuration.host = "http://127.0.0.1:9"

    async def use():
        async with Api(Credentials(configuration)) as api:
            await api.get(NODE, "", "n")

    with pytest.raises(Busy, match="GET /api/v1/nodes/n"):
        asyncio.run(use())


def test_a_slow_server_is_a_busy_server():
    async def slow(request):
        await asyncio.sleep(5)

    with pytest.raises(Busy, match="Timeout"):
        run(slow, lambda api: api.get(NODE, "", "n"), timeout=0.05)


def kubeconfig(tmp_path, server, token):
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


def test_credentials_that_were_rotated_are_read_again_once_for_everybody(tmp_path, monkeypatch):
    reads = []

    async def answers(request):
        if request.headers["Authorization"] != "Bearer two":
            return web.json_response(failure("Unauthorized"), status=401)
        return web.json_response({"metadata": {}})

    async def whole():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answers)
        async with TestServer(app) as server:
            address = str(server.make_url("")).rstrip("/")
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, address, "one")))
            async with Api.from_environment() as api:
                kubeconfig(tmp_path, address, "two")
                read = Credentials.reload

                async def counted(self, refused):
                    reads.append(self.used)
                    return await read(self, refused)

                monkeypatch.setattr(Credentials, "reload", counted)
                found = await asyncio.gather(*(api.get(NODE, "", f"n{i}") for i in range(8)))
                return found, api

    found, _ = asyncio.run(whole())
    assert found == [{"metadata": {}}] * 8
    assert len({token for _, token in reads}) <= 2


def test_no_credentials_at_all_is_said_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SourceUnreachable, match="set KUBECONFIG"):
        Api.from_environment()


def test_a_bucket_gives_a_burst_then_its_rate():
    now = [0.0]
    bucket = TokenBucket(10.0, 5, clock=lambda: now[0])
    assert [round(bucket.next_turn(), 6) for _ in range(7)] == [0, 0, 0, 0, 0, 0.1, 0.2]
    now[0] = 100.0  # what was not used does not add up beyond the burst
    assert [bucket.next_turn() for _ in range(6)] == pytest.approx([0, 0, 0, 0, 0, 0.1])


def test_a_held_bucket_lets_nobody_pass_until_the_rest_is_over():
    now = [0.0]
    bucket = TokenBucket(10.0, 5, clock=lambda: now[0])
    bucket.hold(3.0)
    assert bucket.next_turn() == 3.0
    now[0] = 3.0
    assert bucket.next_turn() == 0.0

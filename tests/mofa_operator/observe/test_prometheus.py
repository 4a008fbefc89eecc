"""The client of Prometheus against a real server on loopback that misbehaves in every way that
servers do.
"""

import asyncio
import dataclasses
import gzip
import json
import ssl
import threading
import time
import tracemalloc
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from mofa_local.certificates import Authority

from mofa_model.errors import InputError, SourceUnreachable
from mofa_operator.observe.prometheus.client import (
    AT_ONCE,
    FailedQuery,
    Prometheus,
    TooMuch,
    parsed,
)
from mofa_operator.observe.prometheus.trainers import TRAINERS
from mofa_operator.settings import PrometheusSettings


def vector(*samples, **more):
    result = [{"metric": labels, "value": [100, value]} for labels, value in samples]
    return json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    ).encode()


@dataclasses.dataclass
class Reply:
    status: int = 200
    body: bytes = vector(({"node": "a"}, "1"))
    headers: dict = dataclasses.field(default_factory=dict)
    length: int | None = None
    wait: float = 0
    endless: bool = False


class Server:
    """Gives these replies in turn, the last one for ever, and remembers what it was asked."""

    def __init__(self, replies):
        self.replies = list(replies)
        self.asked = []
        self.sent = 0
        self.now = self.most = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.answer(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def answer(self, handler):
        form = parse_qs(handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode())
        with self.lock:
            self.asked.append((handler.command, handler.path, form, dict(handler.headers)))
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(reply.wait)
        with self.lock:  # before the reply goes: who has it may ask again at once
            self.now -= 1
        try:
            handler.send_response(reply.status)
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            if not reply.endless:
                handler.send_header("Content-Length", str(reply.length or len(reply.body)))
            handler.end_headers()
            handler.wfile.write(reply.body)
            while reply.endless and self.sent < 1 << 30:
                handler.wfile.write(b" " * (1 << 16))
                self.sent += 1 << 16
        except OSError:
            pass


@contextmanager
def serving(*replies):
    server = Server(replies or [Reply()])
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join()
        server.http.server_close()


def ask(server, query="up", *, times=1, at=None, **given):
    given = {"url": server.url, "timeout": 5.0} | given

    async def run():
        async with Prometheus(PrometheusSettings(**given), pause=0.001) as prometheus:
            return await asyncio.gather(*(prometheus.query(query, at) for _ in range(times)))

    return asyncio.run(run())[0]


def told(server, **given):
    with pytest.raises(SourceUnreachable) as caught:
        ask(server, **given)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --------------------------------------------------------------------------------------------- answers


def test_a_query_is_posted_and_its_answer_is_typed():
    with serving(Reply(body=vector(({"node": "a"}, "1.5"), ({"node": "b"}, "2")))) as server:
        answer = ask(server, 'up{a="b"}', at=12.5)
    assert answer.by("node") == {("a",): 1.5, ("b",): 2.0}
    command, path, form, headers = server.asked[0]
    assert (command, path, form["query"], form["time"]) == (
        "POST",
        "/api/v1/query",
        ['up{a="b"}'],
        ["12.500"],
    )
    assert headers["Accept-Encoding"] == "identity"


def test_points_of_a_subquery_come_with_their_moments():
    data = {
        "resultType": "matrix",
        "result": [{"metric": {"uid": "u"}, "values": [[60, "1"], [120, "1"]]}],
    }
    with serving(Reply(body=json.dumps({"status": "success", "data": data}).encode())) as server:
        assert ask(server).samples[0].points == ((60, 1), (120, 1))


def test_values_that_are_no_numbers_are_left_out_and_said():
    with serving(
        Reply(body=vector(({"n": "a"}, "NaN"), ({"n": "b"}, "+Inf"), ({"n": "c"}, "0")))
    ) as server:
        answer = ask(server)
    assert answer.by("n") == {("c",): 0.0}
    assert answer.warnings == ("2 values are not finite numbers and were left out",)


def test_warnings_and_partial_answers_are_handed_on():
    body = vector(({}, "1"), warnings=["store 3\ndid not answer"], isPartial=True)
    with serving(Reply(body=body)) as server:
        assert ask(server).warnings == ("store 3 did not answer", "the answer is partial")


@pytest.mark.parametrize(
    "body, why",
    [
        (vector(({"n": "a"}, "1"), ({"n": "a"}, "2")), "the same series twice"),
        (b"<html>login</html>", "not JSON"),
        (b"[]", "JSON that is not Prometheus'"),
        (b'{"status":"success","data":{"resultType":"string","result":[1,"x"]}}', "a vector was expected"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[1,"2"]}]}}', "cannot be read"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"2"]}]}}', "cannot be read"),
        (b'{"status":"success","data":{"resultType":"vector","result":[7]}}', "cannot be read"),
        (b'{"status":"success","data":{"resultType":"scalar","result":null}}', "cannot be read"),
        (b'{"status":"error","error":"no"}', "JSON that is not Prometheus'"),
        (b"[" * 100_000, "not JSON"),
        (b"", "not JSON"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)  # fmt: skip
def test_garbage_is_no_answer(body, why):
    with serving(Reply(body=body)) as server:
        assert why in told(server)
        assert len(server.asked) == 1, "it would not be better the second time"


# ---------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_a_large_answer_is_decoded_in_parts_and_says_the_same(kind):
    """Labels may hold what looks like a seam; points of a matrix are many; what stands after the
    series is read.
    """
    points = {"value": [100.5, "0.1"]} if kind == "vector" else {"values": [[1, "2"], [3.5, "NaN"]]}
    every = [
        {"metric": {"node": f"n-{n}", "text": ',{"metric":{"a":"b"}}]' * (n % 3)}, **points}
        for n in range(4000)
    ]
    answer = {"status": "success", "data": {"resultType": kind, "result": every}, "warnings": ["w"]}
    compact = json.dumps(answer, separators=(",", ":")).encode()
    spaced = json.dumps(answer).encode()  # no seam is found in it
    found = parsed(compact, "up", 5000)
    assert found == parsed(spaced, "up", 5000)
    assert len(found.samples) == 4000
    assert found.warnings[0] == "w"
    with pytest.raises(FailedQuery, match="more than 3999 series"):
        parsed(compact, "up", 3999)


@pytest.mark.parametrize("broken", ["[", "}", '"', ',{"metric":{}}', ',{"metric":7}'])
def test_a_large_answer_that_is_broken_in_its_middle_is_none(broken):
    whole = json.dumps(
        json.loads(vector(*(({"node": f"n-{n}"}, "1") for n in range(6000)))), separators=(",", ":")
    )
    middle = whole.index(',{"metric":', len(whole) // 2)
    with pytest.raises(FailedQuery):
        parsed((whole[:middle] + broken + whole[middle:]).encode(), "up", 50_000)


def test_decoding_a_large_answer_takes_little_more_memory_than_the_answer():
    raw = json.dumps(
        json.loads(vector(*(({"node": f"node-{n}"}, "1") for n in range(10_000)))),
        separators=(",", ":"),
    ).encode()
    tracemalloc.start()
    try:
        found = parsed(raw, "up", 50_000)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.samples) == 10_000
    assert most - held < 4.5e6, "all its objects at once were 7 MB more"


def test_an_answer_without_end_is_cut_off_at_the_limit():
    with serving(Reply(body=b'{"status":', endless=True)) as server:
        assert "more than 1000000 bytes" in told(server, largest_answer=1_000_000)
        assert server.sent < 64 << 20
        assert len(server.asked) == 1


def test_more_series_than_the_limit_are_refused():
    with serving(Reply(body=vector(*(({"n": str(n)}, "1") for n in range(11))))) as server:
        assert "more than 10 series" in told(server, most_series=10)
        assert len(ask(server, most_series=11).samples) == 11


@pytest.mark.parametrize(
    "status, said, too_much",
    [
        (422, "query processing would load too many samples into memory in query execution", True),
        (422, "the query exceeded the maximum number of chunks (limit: 2000000 chunks)", True),
        (422, "cannot select more than -search.maxSamplesPerQuery=1000000000 samples", True),
        (503, "query timed out in expression evaluation", True),
        (422, "found duplicate series for the match group on the right hand-side", False),
        (503, "no store is reachable", False),
        (400, "1:7: parse error: unexpected end of input", False),
        (401, "limit", False),
    ],
)
def test_who_asks_is_told_whether_a_smaller_query_may_be_answered(status, said, too_much):
    body = json.dumps({"status": "error", "error": said}).encode()
    reply = Reply(status=status, body=body)
    with serving(reply) as server, pytest.raises(SourceUnreachable) as caught:
        ask(server)
    assert isinstance(caught.value, TooMuch) is too_much


@pytest.mark.parametrize("limit", [{"most_series": 1}, {"largest_answer": 99}, {"timeout": 0.1}])
def test_an_answer_over_our_own_limits_is_too_much(limit):
    body = vector(({"n": "a"}, "1"), ({"n": "b"}, "1"))
    with serving(Reply(body=body, wait=0.3)) as server, pytest.raises(TooMuch):
        ask(server, **limit)


def test_a_server_that_hangs_is_given_up_after_three_times_the_timeout():
    with serving(Reply(wait=0.5)) as server:
        assert "no answer within 0.1 s" in told(server, timeout=0.1)
        assert len(server.asked) == 3


def test_only_a_few_queries_are_under_way_at_once():
    with serving(Reply(wait=0.02)) as server:
        ask(server, times=25)
        assert len(server.asked) == 25
        assert server.most <= AT_ONCE


def test_who_asks_beside_waits_for_no_question_of_the_others():
    """Four slow queries fill the way of the first; behind them wait four more."""

    async def run(server):
        async with Prometheus(PrometheusSettings(url=server.url, timeout=5.0)) as prometheus:
            beside = prometheus.with_own_limit()
            slow = [prometheus.query("up") for _ in range(2 * AT_ONCE)]
            first = asyncio.gather(*slow)
            await asyncio.sleep(0.2)
            assert (await beside.query("up")).number() == 1
            assert len(server.asked) == AT_ONCE + 1
            await first

    with serving(*[Reply(wait=0.5)] * AT_ONCE, Reply()) as server:
        asyncio.run(run(server))


# -------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_temporary_failures_are_tried_again(status):
    with serving(Reply(status=status), Reply(status=status), Reply()) as server:
        assert ask(server).number() == 1
        assert len(server.asked) == 3


def test_a_failure_that_lasts_ends_in_one_line_with_the_servers_words():
    body = json.dumps({"status": "error", "error": "query timed out\nin expression"}).encode()
    with serving(Reply(status=503, body=body)) as server:
        assert (
            told(server)
            == f"Prometheus at {server.url}: refuses with status 503: query timed out in expression"
        )
        assert len(server.asked) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 422, 500])
def test_permanent_failures_are_tried_once(status):
    with serving(Reply(status=status)) as server:
        assert str(status) in told(server)
        assert len(server.asked) == 1


def test_an_answer_that_breaks_off_is_tried_again():
    with serving(Reply(length=10_000), Reply()) as server:
        assert ask(server).number() == 1
    with serving(Reply(length=10_000)) as server:
        assert "broke off" in told(server)


def test_a_redirect_is_refused():
    with serving() as other, serving(Reply(status=302, headers={"Location": other.url})) as server:
        assert "redirect" in told(server)
        assert other.asked == []


def test_a_compressed_answer_was_not_asked_for():
    with serving(
        Reply(body=gzip.compress(vector()), headers={"Content-Encoding": "gzip"})
    ) as server:
        assert "compressed" in told(server)


def test_nobody_there():
    with serving() as server:
        pass
    assert told(server) == f"Prometheus at {server.url}: cannot be connected to"


@pytest.fixture(scope="module")
def authority():
    return Authority("ours")


@contextmanager
def secured(authority, folder):
    """A server with a certificate, and the file of the authority that signed it."""
    pair = authority.server(["localhost"], ["127.0.0.1"])
    for name, text in (("ca", authority.pem), ("crt", pair.certificate), ("key", pair.key)):
        (folder / name).write_text(text)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "crt", folder / "key")
    with serving() as server:
        server.http.handle_error = lambda *_: None
        server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
        server.url = server.url.replace("http:", "https:")
        yield server


def test_a_certificate_is_believed_where_its_authority_is_named_or_nobody_is_to_look(
    authority, tmp_path
):
    with secured(authority, tmp_path) as server:
        assert ask(server, ca_file=str(tmp_path / "ca")).number() == 1
        assert ask(server, insecure_skip_verify=True).number() == 1


def test_a_certificate_of_nobody_known_is_refused(authority, tmp_path):
    with secured(authority, tmp_path) as server:
        assert told(server) == f"Prometheus at {server.url}: certificate refused"
        (tmp_path / "other").write_text(Authority("another").pem)
        assert "certificate refused" in told(server, ca_file=str(tmp_path / "other"))


def test_a_file_that_holds_no_authority_is_bad_input(tmp_path):
    (tmp_path / "ca").write_text("nothing")
    with (
        serving() as server,
        pytest.raises(InputError, match="cannot be read as certificates of an authority"),
    ):
        ask(server, url=server.url.replace("http:", "https:"), ca_file=str(tmp_path / "ca"))


def test_a_server_that_speaks_no_tls_cannot_be_connected_to():
    with serving() as server:
        server.http.handle_error = lambda *_: None
        secure = server.url.replace("http:", "https:")
        assert told(server, url=secure) == f"Prometheus at {secure}: cannot be connected to"


def test_an_answer_that_is_no_http_breaks_off():
    with serving(Reply(status=99)) as server:
        assert "broke off in the middle of its answer" in told(server)


# ------------------------------------------------------------------------------------- who asks, and how


def test_a_token_is_read_anew_when_the_server_says_401(tmp_path):
    file = tmp_path / "token"
    file.write_text("old\n")
    with serving(Reply(), Reply(status=401), Reply()) as server:
        settings = PrometheusSettings(url=server.url, bearer_token_file=str(file))

        async def run():
            async with Prometheus(settings, pause=0) as prometheus:
                await prometheus.query("up")
                file.write_text("new\n")
                return await prometheus.query("up")

        assert asyncio.run(run()).number() == 1
        assert [headers["Authorization"] for *_, headers in server.asked] == [
            "Bearer old",
            "Bearer old",
            "Bearer new",
        ]


def test_a_401_that_stays_is_asked_twice_and_no_more(tmp_path):
    file = tmp_path / "token"
    file.write_text("secret-token")
    with serving(Reply(status=401)) as server:
        assert "does not know us (401)" in told(server, bearer_token_file=str(file))
        assert len(server.asked) == 2


def test_no_secret_stands_in_an_error_even_where_the_server_sends_it_back(tmp_path):
    file = tmp_path / "pair"
    file.write_text("ann:hunter2-and-more")
    body = json.dumps(
        {"error": "bad password hunter2-and-more, header Basic YW5uOmh1bnRlcjItYW5kLW1vcmU="}
    ).encode()
    with serving(Reply(status=403, body=body)) as server:
        message = told(server, basic_auth_file=str(file))
    assert "hunter2" not in message
    assert "YW5u" not in message


def test_user_and_password_of_an_address_are_sent_and_never_shown(caplog):
    caplog.set_level("DEBUG")
    with serving(Reply(status=403)) as server:
        secret = server.url.replace("http://", "http://ann:hunter2pass@")
        assert "hunter2pass" not in told(server, url=secret)
        assert server.asked[0][3]["Authorization"].startswith("Basic ")
    assert "hunter2pass" not in caplog.text


def test_flavours_send_what_they_need():
    with serving() as server:
        ask(server, flavour="thanos", header=("X-Team=training",))
        ask(server, flavour="mimir", org_id="ml")
        ask(server, flavour="VictoriaMetrics")
    thanos, mimir, victoria = server.asked
    assert (thanos[2]["dedup"], thanos[2]["partial_response"]) == (["true"], ["false"])
    assert thanos[3]["X-Team"] == "training"
    assert mimir[3]["X-Scope-OrgID"] == "ml"
    assert victoria[2]["nocache"] == ["1"]


def test_a_path_before_the_api_is_kept():
    with serving() as server:
        ask(server, url=f"{server.url}/prometheus/")
        assert server.asked[0][1] == "/prometheus/api/v1/query"


@pytest.mark.parametrize(
    "given, why",
    [
        ({"url": "ftp://x"}, "http://host:port"),
        ({"url": "prometheus:9090"}, "http://host:port"),
        ({"url": "http://a:b"}, "http://host:port"),
        ({"url": None}, "is missing"),
        ({"flavour": "graphite"}, "unknown name"),
        ({"header": ("X Team=a",)}, "name=value"),
        ({"bearer_token_file": "/nowhere"}, "cannot be read"),
    ],
)
def test_settings_that_cannot_be_right_are_bad_input(given, why):
    with serving() as server, pytest.raises(InputError, match=why):
        ask(server, **given)


def test_amazon_without_botocore_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "botocore.auth", None)
    with serving() as server, pytest.raises(InputError, match="install botocore"):
        ask(server, flavour="amazon")


def test_torchtitan_publishes_nothing_and_is_no_preset():
    assert set(TRAINERS) == {"mofa", "prime-rl", "megatron"}

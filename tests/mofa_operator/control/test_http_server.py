"""The ports hold out against whoever only holds a line, and show nothing to whom the API server
does not know.
"""

import asyncio
import contextlib
import socket
import time
from pathlib import Path

import aiohttp
import pytest
from mofa_local.ports import free_ports

from mofa_model.errors import BadValue
from mofa_operator.api_errors import Busy
from mofa_operator.control import connections
from mofa_operator.control.http_server import ACCESS_REVIEW, TOKEN_REVIEW, AccessCheck, Server
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.page.server import runbooks
from mofa_operator.settings import ServeSettings

HALF_OPEN = 1500


@contextlib.asynccontextmanager
async def served(admission=None, routes=()):
    port, health = free_ports(2)
    settings = ServeSettings(address="127.0.0.1", metrics_port=port, health_port=health)
    well = lambda: (True, [])  # noqa: E731 - an argument
    server = Server(
        settings,
        exporter=Exporter(),
        live=well,
        ready=well,
        measure=lambda: None,
        routes=routes,
        access=admission,
    )
    async with server, aiohttp.ClientSession() as session:

        async def get(path="/metrics", to=port, **headers):
            async with session.get(f"http://127.0.0.1:{to}{path}", headers=headers) as answer:
                return answer.status, await answer.text()

        get.health, get.exporter = health, server._exporter
        yield port, get


@pytest.mark.parametrize("flag", ["--metrics-port", "--health-port"])
def test_a_port_that_is_taken_is_named_with_its_flag(flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"metrics_port": 0, "health_port": 0, flag[2:].replace("-", "_"): port}
        well = lambda: (True, [])  # noqa: E731 - an argument
        server = Server(ServeSettings(address="127.0.0.1", **ports), exporter=Exporter(), live=well, ready=well, measure=lambda: None)  # fmt: skip

        async def listen():
            async with server:
                pass

        with pytest.raises(BadValue, match=f"^{flag}: {port} .*address already in use"):
            asyncio.run(listen())


async def closed(reader, within=10.0):
    with contextlib.suppress(ConnectionError):
        while await asyncio.wait_for(reader.read(4096), within):
            pass


def test_half_open_connections_are_cut_and_keep_nobody_waiting(monkeypatch):
    monkeypatch.setattr(connections, "SILENT", 1.0)

    async def main():
        async with served() as (port, get):
            made = [await asyncio.open_connection("127.0.0.1", port) for _ in range(HALF_OPEN)]
            began = time.monotonic()
            assert (await get())[0] == 200
            assert time.monotonic() - began < 5.0
            await asyncio.gather(*(closed(reader) for reader, _ in made))
            for _, writer in made:
                writer.close()

    asyncio.run(main())


def test_slow_heads_are_cut_and_honest_ones_are_heard(monkeypatch):
    monkeypatch.setattr(connections, "SILENT", 0.5)

    async def main():
        async with served() as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            ended = asyncio.create_task(closed(reader))
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n")
            for _ in range(100):
                if ended.done():
                    break
                writer.write(b"X-a: b\r\n")
                await asyncio.sleep(0.05)
            assert ended.done(), "a header a moment keeps no line"
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r")
            await asyncio.sleep(0.1)
            writer.write(b"\n")
            assert b"200 OK" in await asyncio.wait_for(reader.readline(), 5.0)
            await asyncio.sleep(1.0)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            found = b""
            while found.count(b"200 OK") < 1:
                found += await asyncio.wait_for(reader.read(4096), 5.0)
            writer.close()

    asyncio.run(main())


def test_no_connection_lasts_for_ever(monkeypatch):
    monkeypatch.setattr(connections, "LONGEST", 0.5)

    async def main():
        async with served() as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await closed(reader, 5.0)
            writer.close()

    asyncio.run(main())


async def asks_again(port, path, source, pause, ended):
    """A connection that asks every `pause` seconds, and begins anew where it is cut."""
    request = f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    while not ended.is_set():
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(source, 0)
            )
            with contextlib.closing(writer):
                while not reader.at_eof() and not ended.is_set():
                    writer.write(request)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            while await reader.read(4096):
                                pass
        await asyncio.sleep(pause / 10)


async def fresh(port, path):
    """What somebody is told who makes a connection of his own, as kubelet and Prometheus do."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as session:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                await answer.read()
                return answer.status
    return None


@pytest.mark.parametrize("addresses", [1, 1000])
def test_300_sockets_that_ask_every_two_seconds_fail_no_probe_and_no_scrape(addresses):
    async def main():
        async with served() as (port, get):
            sources = [f"127.1.{n // 250}.{1 + n % 250}" for n in range(addresses)]
            ended = asyncio.Event()
            held = [
                asyncio.create_task(asks_again(where, path, sources[n % addresses], 2.0, ended))
                for where, path in ((get.health, "/healthz"), (port, "/metrics"))
                for n in range(300)
            ]
            await asyncio.sleep(3.0)
            for _ in range(5):
                assert await fresh(get.health, "/healthz") == 200
                assert await fresh(port, "/metrics") == 200
                await asyncio.sleep(0.2)
            ended.set()
            await asyncio.gather(*held)
            await asyncio.sleep(0.2)

    asyncio.run(main())


def test_the_health_port_ends_a_connection_with_its_answer():
    async def main():
        async with served() as (_, get):
            reader, writer = await asyncio.open_connection("127.0.0.1", get.health)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            said = await asyncio.wait_for(reader.read(), 5.0)
            assert said.startswith(b"HTTP/1.1 200 OK")
            writer.close()

    asyncio.run(main())


def resident():
    """Memory of this process. [B]"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.parametrize("fresh_texts", [False, True], ids=["one text", "a new text each time"])
def test_60_clients_that_do_not_read_cost_64_MiB_and_not_an_answer_each(fresh_texts):
    """A scrape of 16 MiB that 60 clients ask for and never read is 960 MiB where each has
    a copy.
    """

    async def main():
        async with served() as (port, get):
            text = bytes(16 * 2**20)
            get.exporter.page = lambda: (bytes(bytearray(text)) if fresh_texts else text, "text/plain")  # fmt: skip
            before, held = resident(), []
            for _ in range(60):
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                held.append(writer)
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            assert resident() - before < 200 * 2**20
            assert await fresh(port, "/metrics") == 200
            for writer in held:
                writer.transport.abort()
            await asyncio.sleep(0.2)

    asyncio.run(main())


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /" + b"a" * 100_000,
        b"GET /?namespace=" + b"%F0%9F%98%80" * 5000,
        b"\xff\xfe" * 1000,
        b"GET /../../etc/passwd",
    ],
    ids=["path", "query", "bytes", "dots"],
)
def test_huge_and_broken_requests_end_and_the_next_is_answered(request_line):
    async def main():
        async with served() as (port, get):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_line + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            said = await asyncio.wait_for(reader.readline(), 5.0)
            assert said.startswith(b"HTTP/1.")
            assert int(said.split()[1]) in {400, 404, 414, 431}
            writer.close()
            assert (await get())[0] == 200

    asyncio.run(main())


class Api:
    """Knows one token, and lets it get /metrics."""

    def __init__(self):
        self.asked = []
        self.down = False

    async def create(self, kind, namespace, body):
        self.asked.append(kind)
        if self.down:
            raise Busy("no connection")
        if kind == TOKEN_REVIEW:
            known = body["spec"]["token"] == "good"
            return {
                "status": {
                    "authenticated": known,
                    "user": {"username": "prometheus"} if known else {},
                }
            }
        assert body["spec"]["user"] == "prometheus"
        return {
            "status": {
                "allowed": body["spec"]["nonResourceAttributes"]
                == {"verb": "get", "path": "/metrics"}
            }
        }


def test_only_whom_the_api_server_knows_and_lets_sees_metrics():
    async def main():
        api = Api()
        async with served(AccessCheck(api), runbooks()) as (_, get):
            assert (await get())[0] == 401
            assert "<h1>MofaJobStuck</h1>" in (await get("/runbooks/MofaJobStuck"))[1], (
                "documents are for all"
            )
            assert (await get("/runbooks/MofaNobody"))[0] == 404
            assert (await get(Authorization="Basic good"))[0] == 401
            assert (await get(Authorization="Bearer " + "a" * 20_000))[0] in {400, 401}
            assert api.asked == [], "what is no token is not asked about"
            assert (await get(Authorization="Bearer bad"))[0] == 401
            assert (await get("/", Authorization="Bearer good"))[0] == 403
            status, text = await get(Authorization="Bearer good")
            assert (status, "process_cpu_seconds_total" in text) == (200, True)
            asked = len(api.asked)
            assert (await get(Authorization="Bearer good"))[0] == 200
            assert len(api.asked) == asked, "what was said holds for a minute"
            api.down = True
            assert (await get(Authorization="Bearer other"))[0] == 503, (
                "nobody can say, so nothing is shown"
            )
        assert set(api.asked) == {TOKEN_REVIEW, ACCESS_REVIEW}

    asyncio.run(main())

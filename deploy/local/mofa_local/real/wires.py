"""What goes in and out of a machine of its own: its network knows nobody, so one process carries
bytes over the border.

    python -m mofa_local.real.wires NETWORK --in 10.66.0.1:6443=127.0.0.1:20000 --socket PATH
        --proxy 127.0.0.1:20001

A wire in listens in the machine and connects to this one's loopback. The socket is how the API
server reaches kubelets and pods (HTTP CONNECT, its egress selector); the proxy is how Prometheus
and people on this machine reach pods by their addresses. A socket belongs to the network in which
it was made, so one process can hold sockets of both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

CLONE_NEWNET: Final = 0x40000000
CHUNK: Final = 65536
PATIENCE: Final = 10.0
"""Longest wait for a connection. [s]"""
LOOPBACK: Final = "127.0.0.1"
LOCAL: Final = frozenset({"localhost", LOOPBACK})
"""Names by which the API server calls webhooks of controllers that run on this machine, outside of
the node.
"""

Carrier = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Border:
    """Makes sockets in the machine and on this one."""

    def __init__(self, network: Path, names: str) -> None:
        """`names` is the address of the machine's name server."""
        self._names = names
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._there = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
        self._here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def socket(self, *, there: bool, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """A socket in the machine, or here; only the thread that asks goes over there for it."""
        with self._in(self._there) if there else contextlib.nullcontext():
            return socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)

    async def connected(
        self, host: str, port: int, *, there: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port in the machine, or here; a name there is one of the cluster's."""
        loop = asyncio.get_running_loop()
        if there and not _is_address(host):
            host = await loop.run_in_executor(None, self.resolved, host)
        made = self.socket(there=there)
        try:
            async with asyncio.timeout(PATIENCE):
                await loop.sock_connect(made, (LOOPBACK if host == "localhost" else host, port))
                return await asyncio.open_connection(sock=made)
        except BaseException:
            made.close()
            raise

    def resolved(self, name: str) -> str:
        """The address of a Service or a pod, as the machine's name server says it; none is
        an `OSError`.
        """
        labels = b"".join(
            bytes([len(label)]) + label for label in name.rstrip(".").encode("ascii").split(b".")
        )
        with self.socket(there=True, kind=socket.SOCK_DGRAM) as query:
            query.settimeout(PATIENCE)
            query.connect((self._names, 53))
            query.send(
                struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0)
                + labels
                + b"\0"
                + struct.pack(">2H", 1, 1)
            )
            answer = query.recv(4096)
        if not struct.unpack(">H", answer[6:8])[0]:
            raise OSError(f"{name}: nobody has this name")
        return socket.inet_ntoa(answer[-4:])  # of one answer, or the last of several

    @contextmanager
    def _in(self, network: int) -> Iterator[None]:
        self._enter(network)
        try:
            yield
        finally:
            self._enter(self._here)

    def _enter(self, network: int) -> None:
        if self._libc.setns(network, CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def wire(border: Border, host: str, port: int) -> Carrier:
    """Carry connections in the machine to a port here."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            await _join((reader, writer), await border.connected(host, port, there=False))
        writer.close()

    return carry


def proxy(border: Border) -> Carrier:
    """An HTTP proxy into the machine: CONNECT, and plain requests, each on a connection of
    its own.
    """

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, version = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
            where = urlsplit(target if "://" in target else f"//{target}")
            host, port = where.hostname or "", where.port or 80
            try:
                connection = await border.connected(host, port, there=host not in LOCAL)
            except (OSError, TimeoutError) as error:
                writer.write(
                    "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nX-Why: "
                    f"{error}\r\n\r\n".encode()
                )
                await writer.drain()
            else:
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    path = f"{where.path or '/'}{'?' + where.query if where.query else ''}"
                    rest = [
                        header
                        for header in head.split(b"\r\n")[1:]
                        if not header.lower().startswith((b"connection:", b"proxy-"))
                    ]
                    connection[1].write(
                        f"{method} {path} {version}\r\nConnection: close\r\n".encode()
                        + b"\r\n".join(rest)
                    )
                await _join((reader, writer), connection)
        writer.close()

    return carry


async def _join(
    pair: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    other: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Carry bytes both ways until both sides have ended."""
    await asyncio.gather(_pour(pair[0], other[1]), _pour(other[0], pair[1]), return_exceptions=True)
    other[1].close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def _serve(arguments: argparse.Namespace) -> None:
    border = Border(arguments.network, arguments.names)
    servers = []
    for text in arguments.wires:
        inner, _, outer = text.partition("=")
        listener = border.socket(there=True)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(_address(inner))
        servers.append(await asyncio.start_server(wire(border, *_address(outer)), sock=listener))
    if arguments.socket:
        servers.append(await asyncio.start_unix_server(proxy(border), arguments.socket))
    servers.append(await asyncio.start_server(proxy(border), *_address(arguments.proxy)))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    arguments.ready.touch()
    await stop.wait()
    for server in servers:
        server.close()


def _is_address(host: str) -> bool:
    return host.replace(".", "").isdecimal()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    """Carry bytes until TERM."""
    parser = argparse.ArgumentParser(prog="python -m mofa_local.real.wires", description=__doc__)
    parser.add_argument("network", type=Path, help="the machine's network, as /proc/PID/ns/net")
    parser.add_argument("--in", dest="wires", action="append", default=[], metavar="THERE=HERE")
    parser.add_argument("--socket", default="")
    parser.add_argument("--names", required=True, help="address of the machine's name server")
    parser.add_argument("--proxy", required=True)
    parser.add_argument(
        "--ready", type=Path, required=True, help="file that is made once it carries"
    )
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()

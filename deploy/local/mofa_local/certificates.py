"""A throwaway certificate authority for servers and users on this machine.

Python's standard library reads certificates and makes none, and the machine may have no `openssl`;
a control plane that lives for minutes on the loopback interface needs just one curve (P-256), one
signature (ECDSA with SHA-256) and four extensions. Nothing here is meant for keys that are worth
something: the arithmetic takes no care of side channels.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

# P-256 of FIPS 186-5: the field's prime, the group's order and its generator; a = -3.
_P: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

_Point = tuple[int, int] | None  # None is the point at infinity

# Object identifiers in their encoded form.
_EC_KEY: Final = bytes.fromhex("06072a8648ce3d0201")
_P256: Final = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256: Final = bytes.fromhex("300a06082a8648ce3d040302")
_ORGANISATION: Final = bytes.fromhex("060355040a")
_COMMON_NAME: Final = bytes.fromhex("0603550403")
_BASIC_CONSTRAINTS: Final = bytes.fromhex("0603551d13")
_KEY_USAGE: Final = bytes.fromhex("0603551d0f")
_EXTENDED_USAGE: Final = bytes.fromhex("0603551d25")
_SUBJECT_KEY: Final = bytes.fromhex("0603551d0e")
_AUTHORITY_KEY: Final = bytes.fromhex("0603551d23")
_OTHER_NAMES: Final = bytes.fromhex("0603551d11")
_SERVER: Final = bytes.fromhex("06082b06010505070301")
_CLIENT: Final = bytes.fromhex("06082b06010505070302")
_CRITICAL: Final = bytes.fromhex("0101ff")


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """A private key on P-256."""

    secret: int
    """The private number."""
    public: bytes
    """The point that belongs to it, uncompressed."""

    @classmethod
    def new(cls) -> Self:
        """A new random key."""
        secret = 1 + secrets.randbelow(_N - 1)
        x, y = _times(secret, _G)
        return cls(secret=secret, public=b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big"))

    @property
    def pem(self) -> str:
        """The private key as PEM, which OpenSSL and Go read."""
        secret = _der(0x04, self.secret.to_bytes(32, "big"))
        return _pem(
            "EC PRIVATE KEY",
            _seq(_int(1), secret, _der(0xA0, _P256), _der(0xA1, _bits(self.public))),
        )

    @property
    def name(self) -> bytes:
        """The key's identifier in certificates: the SHA-1 of the point, RFC 5280 §4.2.1.2."""
        return hashlib.sha1(self.public, usedforsecurity=False).digest()

    def sign(self, message: bytes) -> bytes:
        """An ECDSA signature with SHA-256."""
        digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
        while True:
            k = 1 + secrets.randbelow(_N - 1)
            r = _times(k, _G)[0] % _N
            s = pow(k, -1, _N) * (digest + r * self.secret) % _N
            if r and s:
                return _seq(_int(r), _int(s))


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A certificate and its private key, both as PEM."""

    certificate: str
    """The certificate, which is shown to others."""
    key: str
    """The private key, which is kept."""


class Authority:
    """Signs certificates; its own is `pem`. All end with it."""

    def __init__(self, name: str, *, days: int = 365) -> None:
        self._key = Key.new()
        self._name = _subject(name, ())
        now = datetime.now(UTC)
        self._valid = _seq(_time(now - timedelta(hours=1)), _time(now + timedelta(days=days)))
        ca = _seq(_der(0x01, b"\xff"))
        self.pem = self._certificate(
            self._name,
            self._key,
            (_BASIC_CONSTRAINTS, _CRITICAL, ca),
            (_KEY_USAGE, _CRITICAL, b"\x03\x02\x01\x06"),  # signs certificates and revocation lists
            (_SUBJECT_KEY, b"", _der(0x04, self._key.name)),
        )

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A user as the API server reads it: the common name, and the organisations as groups."""
        return self._issue(_subject(user, groups), (_EXTENDED_USAGE, b"", _seq(_CLIENT)))

    def server(self, names: Sequence[str], addresses: Sequence[str]) -> Pair:
        """A server that is reached under these host names and IP addresses."""
        others = _seq(
            *(_der(0x82, name.encode("ascii")) for name in names),
            *(_der(0x87, ipaddress.ip_address(address).packed) for address in addresses),
        )
        usage = (_EXTENDED_USAGE, b"", _seq(_SERVER))
        return self._issue(_subject(names[0], ()), usage, (_OTHER_NAMES, b"", others))

    def _issue(self, subject: bytes, *extensions: tuple[bytes, bytes, bytes]) -> Pair:
        key = Key.new()
        certificate = self._certificate(
            subject,
            key,
            (_BASIC_CONSTRAINTS, _CRITICAL, _seq()),
            (_KEY_USAGE, _CRITICAL, b"\x03\x02\x07\x80"),  # signs
            (_AUTHORITY_KEY, b"", _seq(_der(0x80, self._key.name))),
            *extensions,
        )
        return Pair(certificate=certificate, key=key.pem)

    def _certificate(
        self, subject: bytes, key: Key, *extensions: tuple[bytes, bytes, bytes]
    ) -> str:
        """A certificate by RFC 5280 §4.1: content, kind of signature, signature."""
        inside = _seq(
            _der(0xA0, _int(2)),  # version 3
            _int(secrets.randbits(127) + 1),
            _ECDSA_SHA256,
            self._name,
            self._valid,
            subject,
            _seq(_seq(_EC_KEY, _P256), _bits(key.public)),
            _der(
                0xA3,
                _seq(
                    *(
                        _seq(name, critical, _der(0x04, value))
                        for name, critical, value in extensions
                    )
                ),
            ),
        )
        return _pem("CERTIFICATE", _seq(inside, _ECDSA_SHA256, _bits(self._key.sign(inside))))


def _add(a: _Point, b: _Point) -> _Point:
    """The sum of two points."""
    if a is None or b is None:
        return a or b
    (ax, ay), (bx, by) = a, b
    if ax == bx and (ay + by) % _P == 0:
        return None
    rise, run = (3 * (ax * ax - 1), 2 * ay) if a == b else (by - ay, bx - ax)
    slope = rise * pow(run, -1, _P)
    x = (slope * slope - ax - bx) % _P
    return x, (slope * (ax - x) - ay) % _P


def _times(count: int, point: tuple[int, int]) -> tuple[int, int]:
    """A point added to itself, `count` in 1 .. order - 1."""
    total: _Point = None
    for bit in f"{count:b}":
        total = _add(total, total)
        total = _add(total, point) if bit == "1" else total
    if total is None:
        raise ValueError(f"{count} is a multiple of the order")
    return total


def _der(tag: int, *parts: bytes) -> bytes:
    """One element of ASN.1's distinguished encoding."""
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _seq(*parts: bytes) -> bytes:
    return _der(0x30, *parts)


def _int(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _der(0x03, b"\0", content)


def _time(moment: datetime) -> bytes:
    return _der(0x17, moment.strftime("%y%m%d%H%M%SZ").encode("ascii"))


def _subject(name: str, groups: Sequence[str]) -> bytes:
    words = [*((_ORGANISATION, group) for group in groups), (_COMMON_NAME, name)]
    return _seq(*(_der(0x31, _seq(kind, _der(0x0C, text.encode()))) for kind, text in words))


def _pem(label: str, content: bytes) -> str:
    lines = textwrap.wrap(base64.b64encode(content).decode("ascii"), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])

"""Certificates of the throwaway authority are what OpenSSL, and so every client, holds to
be right.
"""

import json
import socket
import ssl
import threading

import pytest
from mofa_local.certificates import _G, _N, Authority, Key, _add, _times
from mofa_local.identities import write_kubeconfig, write_private


def store(folder, name, pair):
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_text(pair.certificate)
    key.write_text(pair.key)
    return certificate, key


def handshake(folder, authority, server, client, *, name):
    """What the server learns of the client by TLS 1.3, each checking the other as strictly as
    OpenSSL can.
    """
    accepts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepts.load_cert_chain(*store(folder, "server", server))
    asks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asks.load_cert_chain(*store(folder, "client", client))
    for context in (accepts, asks):
        context.load_verify_locations(cadata=authority.pem)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    here, there = socket.socketpair()
    seen = []

    def serve():
        try:
            with accepts.wrap_socket(there, server_side=True) as connection:
                seen.append(connection.getpeercert())
                connection.recv(1)
        except (ssl.SSLError, OSError) as error:
            seen.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with asks.wrap_socket(here, server_hostname=name) as connection:
            connection.sendall(b"x")
    finally:
        here.close()
        thread.join()
    return seen[0]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_server_and_client_know_each_other(tmp_path, name):
    authority = Authority("us")
    seen = handshake(
        tmp_path,
        authority,
        authority.server(["localhost"], ["127.0.0.1"]),
        authority.client("alice", ["a", "b"]),
        name=name,
    )
    subject = [part[0] for part in seen["subject"]]
    assert subject == [
        ("organizationName", "a"),
        ("organizationName", "b"),
        ("commonName", "alice"),
    ]


def test_a_server_under_another_name_is_refused(tmp_path):
    authority = Authority("us")
    server = authority.server(["localhost"], ["127.0.0.1"])
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        handshake(tmp_path, authority, server, authority.client("alice"), name="127.0.0.2")


def test_a_certificate_of_another_authority_is_refused(tmp_path):
    ours, theirs = Authority("us"), Authority("us")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(
            tmp_path, ours, theirs.server(["localhost"], []), ours.client("alice"), name="localhost"
        )


def test_a_client_is_no_server(tmp_path):
    authority = Authority("us")
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(
            tmp_path,
            authority,
            authority.client("localhost"),
            authority.client("alice"),
            name="localhost",
        )


def test_the_order_times_the_generator_is_infinity():
    assert _times(_N - 1, _G) == (_G[0], -_G[1] % (2**256 - 2**224 + 2**192 + 2**96 - 1))
    assert _add(_times(_N - 1, _G), _G) is None


def test_keys_differ():
    assert Key.new().secret != Key.new().secret


def test_a_private_file_is_private_from_its_first_byte_and_replaced_whole(tmp_path):
    path = write_private(tmp_path / "deep" / "secret", "one")
    path.chmod(0o644)
    assert write_private(path, "two") == path
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("two", 0o600)
    assert [one.name for one in path.parent.iterdir()] == ["secret"]


def test_a_kubeconfig_shows_a_token_or_a_certificate_and_nothing_empty(tmp_path):
    path = write_kubeconfig(
        tmp_path / "config", server="https://127.0.0.1:1", authority="CA", user="bot", token="t"
    )
    assert json.loads(path.read_text())["users"] == [{"name": "bot", "user": {"token": "t"}}]

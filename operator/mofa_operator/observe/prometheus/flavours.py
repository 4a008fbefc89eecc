"""Differences between servers that speak Prometheus' protocol, as data; and our credentials.

    prometheus       itself, and servers that do not differ
    thanos           replicas are merged, and an answer without all stores is an error
    mimir            the tenant goes in X-Scope-OrgID (Cortex, Loki's kin)
    victoriametrics  says `isPartial` where others have warnings
    google, azure    managed; a bearer token in a file
    amazon           managed; every request is signed (SigV4), by botocore where it is installed

Secrets are read from files, read again when the server says 401, and never shown.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mofa_model.errors import BadFile, BadValue, InputError, UnknownName
from mofa_model.units import DAY
from mofa_operator.settings import PrometheusSettings


class Flavour(StrEnum):
    """Kinds of servers."""

    PROMETHEUS = "prometheus"
    THANOS = "thanos"
    MIMIR = "mimir"
    VICTORIAMETRICS = "victoriametrics"
    GOOGLE = "google"
    AMAZON = "amazon"
    AZURE = "azure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Traits:
    """How a flavour differs."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """Sent with every query."""
    signed: bool = False
    """Whether each request carries a signature."""
    longest: float = 7 * DAY
    """Longest stretch of time of one query; managed servers limit the samples of a query. [s]"""


TRAITS: Final[Mapping[Flavour, Traits]] = {
    Flavour.PROMETHEUS: Traits(),
    Flavour.THANOS: Traits(parameters={"dedup": "true", "partial_response": "false"}),
    Flavour.MIMIR: Traits(longest=DAY),
    Flavour.VICTORIAMETRICS: Traits(parameters={"nocache": "1"}),
    Flavour.GOOGLE: Traits(longest=DAY),
    Flavour.AMAZON: Traits(signed=True, longest=DAY),
    Flavour.AZURE: Traits(longest=DAY),
}


def flavour(name: str) -> Flavour:
    """A flavour by its name."""
    try:
        return Flavour(name.lower())
    except ValueError:
        raise UnknownName("prometheus flavour", name, list(Flavour)) from None


class PrometheusCredentials:
    """Headers of authentication; secrets can be read again, and struck out of any text."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._traits = TRAITS[flavour(settings.flavour)]
        self._secrets: tuple[str, ...] = ()
        self._fixed = dict(_header(text) for text in settings.header)
        if settings.org_id:
            self._fixed["X-Scope-OrgID"] = settings.org_id
        self._headers: dict[str, str] | None = None

    def headers(self, *, anew: bool = False) -> dict[str, str]:
        """Headers of a request; files are read the first time, and where `anew` is true."""
        if self._headers is None or anew:
            self._headers = {**self._fixed, **self._authorization()}
        return dict(self._headers)

    def signature(self, url: str, body: bytes, content_type: str) -> dict[str, str]:
        """Headers that sign one request, where the flavour wants that."""
        return _signed(url, body, content_type) if self._traits.signed else {}

    def without_secrets(self, text: str) -> str:
        """A text without our secrets, which a server might send back."""
        for secret in self._secrets:
            text = text.replace(secret, "…")
        return text

    def _authorization(self) -> dict[str, str]:
        settings = self._settings
        fixed = tuple(value for value in self._fixed.values() if len(value) > 3)
        if settings.bearer_token_file:
            token = _secret(settings.bearer_token_file)
            self._secrets = (*fixed, token)
            return {"Authorization": f"Bearer {token}"}
        pair = (
            _secret(settings.basic_auth_file)
            if settings.basic_auth_file
            else _user_in(settings.url or "")
        )
        if not pair:
            self._secrets = fixed
            return {}
        coded = base64.b64encode(pair.encode()).decode()
        self._secrets = (*fixed, coded, pair, *(part for part in (pair.partition(":")[2],) if part))
        return {"Authorization": f"Basic {coded}"}


def _header(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (sign and name.isascii() and name.replace("-", "").isalnum() and value.isprintable()):
        raise BadValue("prometheus header", name, "write name=value, for example X-Team=training")
    return name, value


def _secret(path: str) -> str:
    try:
        text = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise BadFile(path, f"cannot be read: {type(error).__name__}") from None
    if not text or not text.isprintable() or not text.isascii():
        raise BadFile(path, "must hold the secret on one line and nothing else")
    return text


def _user_in(url: str) -> str:
    """user:password of an address, if it has them."""
    user, sign, _ = urlsplit(url).netloc.rpartition("@")
    return user if sign else ""


def _signed(url: str, body: bytes, content_type: str) -> dict[str, str]:
    """Headers of a signature by SigV4; region from the workspace's address or the environment."""
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.session import Session
    except ImportError:
        raise InputError(
            "prometheus flavour: amazon signs its requests with botocore, which is not installed; "
            "install botocore"
        ) from None
    session = Session()
    parts = (urlsplit(url).hostname or "").split(".")
    region = (
        parts[1]
        if parts[0] == "aps-workspaces" and len(parts) > 2
        else session.get_config_variable("region")
    )
    credentials = session.get_credentials()
    if credentials is None or not region:
        raise InputError(
            "prometheus flavour: amazon needs credentials and a region; "
            "set the role of the service account"
        )
    request = AWSRequest(method="POST", url=url, data=body, headers={"Content-Type": content_type})
    SigV4Auth(credentials, "aps", region).add_auth(request)
    return {name: str(value) for name, value in request.headers.items() if name != "Content-Type"}

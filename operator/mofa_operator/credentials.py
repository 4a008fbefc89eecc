"""How to reach the API server, and with which credentials; they are read again when rotated."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

from mofa_model.errors import BadFile, BadValue, SourceUnreachable

_FRESH: Final = 60.0
"""How long a token is used before it is read again, as in the Kubernetes clients. [s]"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What a session needs; sessions with equal access can share connections."""

    server: str
    """Address of the API server, without a slash at the end."""
    ca_file: str | None = None
    """Certificate authority of the server; None = the system's."""
    cert_file: str | None = None
    """Our client certificate."""
    key_file: str | None = None
    """Its key."""
    verify: bool = True
    """Whether the server's certificate is checked."""
    server_name: str | None = None
    """Name that the server's certificate must have, where it is not the address."""
    proxy: str | None = None
    """Proxy on the way."""

    def context(self) -> ssl.SSLContext | None:
        """The TLS context of connections; None for plain HTTP."""
        if not self.server.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        # Cluster authorities often lack key identifiers, which Python 3.13's strict checking wants.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


UsedCredentials: TypeAlias = tuple[Access, str | None]
"""Access and the value of the Authorization header."""


class Credentials:
    """Access and token; the token is read again each minute, and everything after a 401."""

    def __init__(self, configuration: Any, context: str | None = None) -> None:
        """`configuration` is a loaded `kubernetes.client.Configuration` of this context."""
        self._configuration = configuration
        self._context = context
        self._fresh_until = monotonic() + _FRESH
        self._reading = asyncio.Lock()
        self.access = _access(configuration)
        self.token: str | None = _token(configuration)

    @property
    def stale(self) -> bool:
        """Whether `refresh` should be called before the next request."""
        return monotonic() > self._fresh_until

    async def refresh(self) -> None:
        """Read the token again, beside the loop; if that fails, the old one stays in use."""
        self._fresh_until = monotonic() + _FRESH
        try:
            self.token = await asyncio.to_thread(_token, self._configuration)
        except Exception as error:  # noqa: BLE001 - files and foreign plugins fail in many ways
            _log.warning("the token cannot be read again: %s", error)

    @property
    def used(self) -> UsedCredentials:
        """Certificate and token that requests use now."""
        return self.access, self.token

    async def reload(self, refused: UsedCredentials) -> bool:
        """Read everything again, once for all who were `refused`; returns whether it is new."""
        async with self._reading:
            if self.used == refused:
                try:
                    self._configuration = await asyncio.to_thread(_configuration, self._context)
                except SourceUnreachable as error:
                    _log.warning("the credentials cannot be read again: %s", error)
                    return False
                self.access, self.token = _access(self._configuration), _token(self._configuration)
                self._fresh_until = monotonic() + _FRESH
        return self.used != refused

    @classmethod
    def from_environment(cls, context: str | None = None) -> Credentials:
        """Credentials of KUBECONFIG or ~/.kube/config, else of the pod's service account."""
        return cls(_configuration(context), context)


def namespace_of(context: str | None = None) -> str:
    """The namespace of a context of the kubeconfig."""
    contexts = _contexts()
    chosen = contexts.get(context or "", next(iter(contexts.values()), {}))
    return str(chosen.get("namespace") or "default")


def _contexts() -> dict[str, dict[str, Any]]:
    """Contexts of the kubeconfig by name, the current one first; none where it cannot be read."""
    from kubernetes import config

    try:
        path = os.environ.get("KUBECONFIG")
        others, current = config.list_kube_config_contexts(path)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - whoever reads it as a whole says what is wrong with it
        return {}
    return {context["name"]: context["context"] for context in (current, *others)}


def _configuration(context: str | None = None) -> Any:
    from kubernetes import client, config

    configuration = client.Configuration()
    path = os.environ.get("KUBECONFIG")
    if context is not None and context not in (contexts := _contexts()):
        raise BadValue("--context", context, f"this kubeconfig has {', '.join(contexts) or 'none'}")
    try:
        if path or Path("~/.kube/config").expanduser().is_file():
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=path or "~/.kube/config",
                client_configuration=configuration,
                context=context,
            )
        else:
            load = config.load_incluster_config
            load(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        is_here = path or context or os.environ.get("KUBERNETES_SERVICE_HOST")
        why = str(error).rstrip(".") if is_here else "there is no kubeconfig"
        raise SourceUnreachable(
            f"Kubernetes: {why}; set KUBECONFIG, or run in a pod with a service account"
        ) from None
    except Exception as error:  # noqa: BLE001 - errors of its parser and of plugins come through
        raise BadFile(
            path or "~/.kube/config", f"is not a kubeconfig: {str(error).partition(chr(10))[0]}"
        ) from None
    return configuration


def _access(configuration: Any) -> Access:
    return Access(
        server=configuration.host.rstrip("/"),
        ca_file=configuration.ssl_ca_cert,
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        verify=configuration.verify_ssl,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
    )


def _token(configuration: Any) -> str | None:
    """The value of the Authorization header."""
    token: str | None = configuration.get_api_key_with_prefix("BearerToken")
    return token

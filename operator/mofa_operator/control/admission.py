"""Who may see what is served: whom the API server knows by its token, and lets read the path, as kube-rbac-proxy asks it.

A TokenReview says who it is, a SubjectAccessReview whether a role gives `get` on the path; what was said holds for a minute.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from aiohttp import web

from mofa_model.kinds import Kind
from mofa_model.kinds.shape import at, part
from mofa_operator.api import Api
from mofa_operator.page.server import PATH
from mofa_operator.recent import Recent
from mofa_operator.refusals import ApiError

TOKEN_REVIEW: Final = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
ACCESS_REVIEW: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"
)
HELD: Final = 60.0
"""How long an answer of the API server holds. [s]"""
_LONGEST: Final = 16_384
"""Characters of a token. [1]"""


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Admission:
    """Asks the API server, and remembers what it said; as a middleware of aiohttp, `admission.check`."""

    def __init__(self, api: Api) -> None:
        """Nobody is known yet."""
        self._api = api
        self._said: Recent[tuple[float, int]] = Recent()

    async def status(self, token: str, path: str) -> int:
        """200 where it may be seen, 401 where nobody knows the token, 403 where he may not, 503 where nobody can say."""
        key = hashlib.blake2b(f"{path}\n{token}".encode()).digest()
        if key in self._said and self._said[key][0] > time.monotonic():
            return self._said[key][1]
        try:
            status = await self._asked(token, path)
        except ApiError:
            return 503
        self._said[key] = time.monotonic() + HELD, status
        return status

    async def _asked(self, token: str, path: str) -> int:
        if not token or len(token) > _LONGEST:
            return 401
        said = await self._api.create(TOKEN_REVIEW, "", _review(TOKEN_REVIEW, {"token": token}))
        user = part(said, "status", "user")
        if at(said, "status", "authenticated") is not True:
            return 401
        who = {"user": user.get("username"), "uid": user.get("uid"), "groups": user.get("groups")}
        wanted = {
            **who,
            "extra": user.get("extra"),
            "nonResourceAttributes": {"verb": "get", "path": path},
        }
        said = await self._api.create(ACCESS_REVIEW, "", _review(ACCESS_REVIEW, wanted))
        return 200 if at(said, "status", "allowed") is True else 403

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let through whoever may see the path; documents are for everybody."""
        if request.path.startswith(PATH):
            return await handler(request)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        status = await self.status(token if scheme.lower() == "bearer" else "", request.path)
        if status == 200:
            return await handler(request)
        return web.Response(
            status=status, headers={"WWW-Authenticate": "Bearer"} if status == 401 else {}
        )


def _review(kind: Kind, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}

"""The routes of the page: read-only, no cookies, no scripts, and headers that forbid both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from mofa_model.page import AdviceView
from mofa_model.page.markup import HEADERS, el, page, text
from mofa_operator.objects import LiveProfile
from mofa_operator.page.history import JobHistory
from mofa_operator.page.jobs import LINKS, ShownJob, job_page
from mofa_operator.page.listed import jobs_page
from mofa_operator.page.profiles import profile_page, profiles_page
from mofa_operator.page.what_if import said
from mofa_operator.snapshot import Refusal


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the page takes what it shows: all of it from what the operator holds already, but for histories."""

    jobs: Callable[[str | None], Awaitable[Sequence[ShownJob]]]
    """Every job that is advised, of one namespace or of all."""
    job: Callable[[str, str, str], ShownJob | None]
    """One job by resource, namespace and name."""
    view: Callable[[str, str, str, Mapping[str, str]], Awaitable[AdviceView | Refusal | str | None]]
    """The same job's advice in full, with changes to its question; a sentence that says why it cannot be shown now; None where there
    is none."""
    curves: Callable[[str, str, str], Awaitable[JobHistory | str]]
    """What was predicted and seen of it over time; a sentence where nobody can say."""
    profiles: Callable[[], Awaitable[Sequence[LiveProfile]]]
    """Every profile."""
    profile: Callable[[str], LiveProfile | None]
    """One profile by its name."""


def routes(source: Source) -> list[web.RouteDef]:
    """Handlers of the page; what they show is written beside the event loop."""

    async def jobs(request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "").strip() or None
        words = request.query.get("search", "").strip()[:200]
        found = await source.jobs(namespace)
        number = request.query.get("page", "")
        at = int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1
        return _page(await asyncio.to_thread(jobs_page, found, namespace, words, at))

    async def job(request: web.Request) -> web.Response:
        where = tuple(request.match_info[word] for word in ("resource", "namespace", "name"))
        resource, namespace, name = where
        shown = source.job(resource, namespace, name)
        if shown is None:
            return _missing("job")
        changes = said(request.query)
        view, lately = await asyncio.gather(
            source.view(resource, namespace, name, changes), source.curves(resource, namespace, name)
        )
        return _page(await asyncio.to_thread(job_page, shown, view, lately, changes))

    async def profiles(_: web.Request) -> web.Response:
        return _page(await asyncio.to_thread(profiles_page, await source.profiles()))

    async def profile(request: web.Request) -> web.Response:
        found = source.profile(request.match_info["name"])
        return _missing("profile") if found is None else _page(await asyncio.to_thread(profile_page, found))

    return [
        web.get("/", jobs),
        web.get("/jobs/{resource}/{namespace}/{name}", job),
        web.get("/profiles", profiles),
        web.get("/profiles/{name}", profile),
    ]


def _page(html: str, status: int = 200) -> web.Response:
    return web.Response(text=html, content_type="text/html", charset="utf-8", status=status, headers=HEADERS)


def _missing(what: str) -> web.Response:
    body = page("Not found", el("h1", "Not found"), el("p", f"There is no such {what}."), links=LINKS)
    return _page(text(body), 404)

"""The routes of the page: read-only, no cookies, no scripts, and headers that forbid both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Protocol, TypeAlias
from xml.etree import ElementTree as ET

from aiohttp import web

from mofa_model.page import AdviceView
from mofa_model.page.markup import HEADERS, el, page, text
from mofa_operator.objects import LiveProfile
from mofa_operator.page.job import LINKS, ShownJob, changes_in, job_page
from mofa_operator.page.jobs import jobs_page
from mofa_operator.page.profiles import profile_page, profiles_page
from mofa_operator.snapshot import Curves, Refusal

PATH: Final = "/runbooks/"
"""Path of the runbooks, which hold nothing of a cluster: whoever reaches the port may read them."""
INDEX: Final = "README"
"""Name of the list of all runbooks."""
_HERE: Final = Path(__file__).resolve()
_FOLDERS: Final = (_HERE.parents[1] / "runbooks", _HERE.parents[3] / "docs" / "runbooks")
"""Folders of the runbooks, in a wheel and in a clone."""


@cache
def runbook_page(name: str) -> str | None:
    """A runbook by the name of its alert; the list of all for an empty name; None without one."""
    markdown = _pages().get(name.removesuffix(".md") or INDEX)
    if markdown is None:
        return None
    from markdown_it import MarkdownIt

    title = markdown.partition("\n")[0].removeprefix("# ")
    html = (
        MarkdownIt("commonmark", {"html": False, "xhtmlOut": True}).enable("table").render(markdown)
    )
    body = ET.fromstring(f"<div>{html}</div>")  # noqa: S314 - made here, of our own pages
    for link in body.iter("a"):
        if not link.get("href", "").startswith("Mofa"):  # other documents are not served
            link.tag = "em"
            link.attrib.clear()
    for table in list(body.findall("table")):  # wide ones are scrolled on a phone
        place = list(body).index(table)
        body[place] = el(
            "div", table, class_="scroll", tabindex="0", role="group", aria_label=title
        )
    return text(page(title, body, links=(("All runbooks", f"{PATH}{INDEX}"),)))


@cache
def _pages() -> dict[str, str]:
    """The text of every runbook, by name."""
    folder = next(folder for folder in _FOLDERS if folder.is_dir())
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]
AGAIN: Final = 2
"""Time after which a browser asks again, where another operator has the page. [s]"""


class Source(Protocol):
    """Reads what the page shows: from memory, except for curves."""

    async def jobs(self, namespace: str | None) -> Sequence[ShownJob]:
        """Every job that is advised, of one namespace or of all."""

    def job(self, resource: str, namespace: str, name: str) -> ShownJob | None:
        """One job."""

    async def view(
        self, resource: str, namespace: str, name: str, changes: Mapping[str, str]
    ) -> AdviceView | Refusal | str | None:
        """A job's advice in full, with changes to its question; a sentence where it cannot be
        shown; None where there is none.
        """

    async def curves(self, resource: str, namespace: str, name: str) -> Curves | str:
        """What was predicted and observed of a job; a sentence where that is unknown."""

    async def profiles(self) -> Sequence[LiveProfile]:
        """Every profile."""

    def profile(self, name: str) -> LiveProfile | None:
        """One profile."""


def routes(source: Source, why_empty: Callable[[], str] = str) -> list[web.RouteDef]:
    """Handlers of the page, which make its text in threads beside the event loop.

    `why_empty` says why there is nothing to show, and is empty where there is something.
    """

    async def jobs(request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "").strip() or None
        words = request.query.get("search", "").strip()[:200]
        number = request.query.get("page", "")
        is_number = number.isascii() and number.isdigit() and len(number) < 9
        # Only the thread holds the jobs, so that it frees thousands of them, and not the loop.
        listed = iter(await source.jobs(namespace))
        html = asyncio.to_thread(
            jobs_page, listed, namespace, words, int(number) if is_number else 1
        )
        del listed
        return _page(await html)

    async def job(request: web.Request) -> web.Response:
        path = request.match_info
        resource, namespace, name = path["resource"], path["namespace"], path["name"]
        shown = source.job(resource, namespace, name)
        if shown is None:
            return _missing("job")
        changes = changes_in(request.query)
        view, history = await asyncio.gather(
            source.view(resource, namespace, name, changes),
            source.curves(resource, namespace, name),
        )
        return _page(await asyncio.to_thread(job_page, shown, view, history, changes))

    async def profiles(_: web.Request) -> web.Response:
        return _page(await asyncio.to_thread(profiles_page, await source.profiles()))

    async def profile(request: web.Request) -> web.Response:
        shown = source.profile(request.match_info["name"])
        if shown is None:
            return _missing("profile")
        return _page(await asyncio.to_thread(profile_page, shown))

    def if_leading(handler: Handler) -> Handler:
        """The handler where this operator leads; a standby knows of no job."""

        async def handle(request: web.Request) -> web.Response:
            return _elsewhere(why) if (why := why_empty()) else await handler(request)

        return handle

    return [
        web.get("/", if_leading(jobs)),
        web.get("/jobs/{resource}/{namespace}/{name}", if_leading(job)),
        web.get("/profiles", if_leading(profiles)),
        web.get("/profiles/{name}", if_leading(profile)),
    ]


def runbooks() -> list[web.RouteDef]:
    """Handlers of the runbooks, which are served without the page too."""

    async def runbook(request: web.Request) -> web.Response:
        html = await asyncio.to_thread(runbook_page, request.match_info["name"])
        return _missing("runbook") if html is None else _page(html)

    return [web.get(PATH + "{name:[A-Za-z.]*}", runbook)]


def _elsewhere(why: str) -> web.Response:
    """A page with status 503 that sends people to the operator that leads."""
    again = (
        f"It is asked for again in {AGAIN} s, and a Service of several operators may then lead to "
        "the one that has it."
    )
    sentences = (
        f"{why[:1].upper()}{why[1:]}.",
        again,
        "With kubectl port-forward, forward to the pod of that operator.",
    )
    paragraphs = (el("p", sentence) for sentence in sentences)
    body = page("Not here", el("h1", "Not here"), *paragraphs, links=LINKS)
    answer = _page(text(body), 503)
    answer.headers.update({"Retry-After": str(AGAIN), "Refresh": str(AGAIN)})
    answer.force_close()
    return answer


def _page(html: str, status: int = 200) -> web.Response:
    return web.Response(
        text=html, content_type="text/html", charset="utf-8", status=status, headers=HEADERS
    )


def _missing(what: str) -> web.Response:
    body = page(
        "Not found", el("h1", "Not found"), el("p", f"There is no such {what}."), links=LINKS
    )
    return _page(text(body), 404)

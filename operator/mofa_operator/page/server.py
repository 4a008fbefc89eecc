"""The routes of the page: read-only, no cookies, no scripts, and headers that forbid both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias
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
"""Where they are served; they say nothing of a cluster, so whoever reaches the port may read them.
"""
INDEX: Final = "README"
"""The list of all."""
_HERE: Final = Path(__file__).resolve()
_FOLDERS: Final = (_HERE.parents[1] / "runbooks", _HERE.parents[3] / "docs" / "runbooks")
"""In a wheel, and in a clone."""


@cache
def runbook_page(name: str) -> str | None:
    """A runbook by the name of its alert; the list for an empty name; None where there is none."""
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
        if not link.get("href", "").startswith("Mofa"):  # other documents are not here
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
    folder = next(one for one in _FOLDERS if one.is_dir())
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}


Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]
AGAIN: Final = 2
"""When a browser asks again where another operator has the page. [s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the page takes what it shows: from what the operator holds, except for curves."""

    jobs: Callable[[str | None], Awaitable[Sequence[ShownJob]]]
    """Every job that is advised, of one namespace or of all."""
    job: Callable[[str, str, str], ShownJob | None]
    """One job by resource, namespace and name."""
    view: Callable[[str, str, str, Mapping[str, str]], Awaitable[AdviceView | Refusal | str | None]]
    """A job's advice in full, with changes to its question; a sentence where it cannot be shown;
    None where there is none."""
    curves: Callable[[str, str, str], Awaitable[Curves | str]]
    """What was predicted and seen of it over time; a sentence where nobody can say."""
    profiles: Callable[[], Awaitable[Sequence[LiveProfile]]]
    """Every profile."""
    profile: Callable[[str], LiveProfile | None]
    """One profile by its name."""


def routes(source: Source, away: Callable[[], str] = str) -> list[web.RouteDef]:
    """Handlers of the page; what they show is written beside the event loop.

    `away` says why there is nothing to show.
    """

    async def jobs(request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "").strip() or None
        words = request.query.get("search", "").strip()[:200]
        number = request.query.get("page", "")
        at = int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1
        # The thread frees thousands of jobs: only its iterator holds them, so the loop need not.
        found = iter(await source.jobs(namespace))
        shown = asyncio.to_thread(jobs_page, found, namespace, words, at)
        del found
        return _page(await shown)

    async def job(request: web.Request) -> web.Response:
        where = tuple(request.match_info[word] for word in ("resource", "namespace", "name"))
        resource, namespace, name = where
        shown = source.job(resource, namespace, name)
        if shown is None:
            return _missing("job")
        changes = changes_in(request.query)
        view, lately = await asyncio.gather(
            source.view(resource, namespace, name, changes),
            source.curves(resource, namespace, name),
        )
        return _page(await asyncio.to_thread(job_page, shown, view, lately, changes))

    async def profiles(_: web.Request) -> web.Response:
        return _page(await asyncio.to_thread(profiles_page, await source.profiles()))

    async def profile(request: web.Request) -> web.Response:
        found = source.profile(request.match_info["name"])
        return (
            _missing("profile")
            if found is None
            else _page(await asyncio.to_thread(profile_page, found))
        )

    def there(shown: Handler) -> Handler:
        """The page where this operator leads; one that stands by knows of no job."""

        async def handle(request: web.Request) -> web.Response:
            return _elsewhere(why) if (why := away()) else await shown(request)

        return handle

    return [
        web.get("/", there(jobs)),
        web.get("/jobs/{resource}/{namespace}/{name}", there(job)),
        web.get("/profiles", there(profiles)),
        web.get("/profiles/{name}", there(profile)),
    ]


def runbooks() -> list[web.RouteDef]:
    """Handlers of the runbooks, which are there without the page, too."""

    async def runbook(request: web.Request) -> web.Response:
        found = await asyncio.to_thread(runbook_page, request.match_info["name"])
        return _missing("runbook") if found is None else _page(found)

    return [web.get(PATH + "{name:[A-Za-z.]*}", runbook)]


def _elsewhere(why: str) -> web.Response:
    """A page with status 503 that sends people to the operator that leads."""
    again = (
        f"It is asked for again in {AGAIN} s, and a Service of several operators may then lead to "
        "the one that has it."
    )
    words = (
        f"{why[:1].upper()}{why[1:]}.",
        again,
        "With kubectl port-forward, forward to the pod of that operator.",
    )
    body = page("Not here", el("h1", "Not here"), *(el("p", one) for one in words), links=LINKS)
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

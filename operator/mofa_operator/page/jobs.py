"""The list of jobs: those in most trouble first, found by their words."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from mofa_model.manifest.advised import duration, quantity
from mofa_model.page.markup import FormField, Node, el, form, page, table, text
from mofa_operator.page.job import BAD, LINKS, ShownJob, address, health_word, state_word

_HEADINGS: Final = (
    "job",
    "health",
    "state",
    "observed",
    "predicted",
    "ETTR",
    "strategy",
    "nodes",
    "checkpoint",
)
MOST: Final = 25
"""Most jobs of one page. [1]"""
TRY: Final = "kubectl apply -f examples/llama3-405b.yaml"
"""The command that an empty list proposes."""
_FIELDS: Final = (
    FormField(
        name="search", label="Search", hint="words of a name, kind, state, health or strategy"
    ),
    FormField(name="namespace", label="Namespace"),
)


def jobs_page(
    jobs: Iterable[ShownJob], namespace: str | None = None, words: str = "", number: int = 1
) -> str:
    """A page of the list of jobs of a namespace that have the `words`, most trouble first.

    A `number` beyond the last page means the last.
    """
    jobs = list(jobs)
    matches = sorted((job for job in jobs if has(job, words)), key=trouble)
    last = max(1, math.ceil(len(matches) / MOST))
    number = max(1, min(number, last))
    rows = [_row(job) for job in matches[MOST * (number - 1) : MOST * number]]
    where = "" if namespace is None else f" in {namespace}"
    title = f"Jobs{where}"
    search = {"search": words, "namespace": namespace or ""}
    content: list[Node] = [form(_FIELDS, search, {}, action="/", button="Search", look="search")]
    if rows:
        first = MOST * (number - 1) + 1
        shown = f"{first:,} to {first + len(rows) - 1:,} of " if last > 1 else ""
        count = f"{shown}{len(matches):,} job{'s' if len(matches) != 1 else ''}"
        caption = f"{count}, most trouble first; throughput in tokens a second"
        content.append(
            table(_HEADINGS, rows, numbers=(3, 4, 5, 7), minor=(3, 4, 5, 6, 7, 8), caption=caption)
        )
    elif jobs:
        content.append(el("p", f"None of {len(jobs):,} jobs has all of these words."))
    else:
        content = [el("p", "No job is advised", where, " yet. Try ", el("code", TRY), ".")]
    if last > 1:
        content.append(_pages(number, last, search))
    moment = time.strftime("%H:%M:%S UTC", time.gmtime())
    foot = f"As of {moment}; load the page again for what is new."
    return text(page(title, el("h1", title), *content, links=LINKS, foot=foot))


def _pages(number: int, last: int, search: Mapping[str, str]) -> Node:
    """Links to the pages before and after of the same search."""

    def link(other: int, name: str, rel: str) -> Node:
        query = urlencode({**{key: value for key, value in search.items() if value}, "page": other})
        return el("li", el("a", name, href=f"/?{query}", rel=rel) if 1 <= other <= last else name)

    current = el("li", f"page {number:,} of {last:,}", aria_current="page")
    items = link(number - 1, "Before", "prev"), current, link(number + 1, "Next", "next")
    return el("nav", el("ul", *items), aria_label="Pages")


def trouble(shown: ShownJob) -> tuple[int, float, str]:
    """Its place in the list: stuck, without an answer, drifting by how much, all others."""
    observed = shown.status.observed.tokens_per_second
    predicted = shown.predicted.get("tokens_per_second")
    pace = 1.0
    if observed is not None and predicted and predicted.target:
        pace = observed / predicted.target
    ranks = (
        shown.health == "Stuck",
        shown.state in BAD,
        shown.health == "Drifting",
        not shown.is_well,
    )
    return next((rank for rank, holds in enumerate(ranks) if holds), len(ranks)), pace, shown.name


def has(shown: ShownJob, words: str) -> bool:
    """Whether a job has every word of the search."""
    texts = (
        shown.name,
        shown.job.key.kind.kind,
        shown.state,
        shown.health,
        shown.status.summary or shown.annotation("strategy"),
    )
    line = " ".join(filter(None, texts)).lower()
    return all(word in line for word in words.lower().split())


def _row(shown: ShownJob) -> Sequence[Node]:
    status = shown.status
    observed, interval = status.observed.tokens_per_second, status.interval
    tokens, ettr = shown.predicted.get("tokens_per_second"), shown.predicted.get("ettr")
    strategy = status.summary or shown.annotation("strategy")
    return (
        el("a", shown.name, href=address(shown)),
        health_word(shown),
        state_word(shown),
        "-" if observed is None else quantity(observed),
        (shown.annotation("predicted-tokens-per-second") or "-")
        if tokens is None
        else quantity(tokens.target),
        (shown.annotation("predicted-ettr") or "-") if ettr is None else f"{ettr.target:.3f}",
        el("code", strategy) if strategy else "-",
        f"{status.nodes:.0f}" if status.nodes else "-",
        "-" if interval is None else duration(interval),
    )

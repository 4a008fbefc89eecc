"""Answers from worker processes: each question is computed once, whoever asks it and however often.

The page asks here too, for an answer in full (`view`): behind every answer that is waited for, few at a time. Namespaces
take turns. A question that outgrows the memory or the time that one may have is told so, by `Outgrown`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mofa_model.page import AdviceView
from mofa_operator.control import worker
from mofa_operator.control.process import NoAnswer, WorkerProcess
from mofa_operator.control.turns import Turns
from mofa_operator.decision import Answer, Unsearched
from mofa_operator.recent import Recent
from mofa_operator.snapshot import Question, Refusal

DEADLINE: Final = 60.0
"""Longest time of one answer; one that takes longer is taken for hung, and its process is killed. [s]"""
KEPT: Final = 2048
"""Answers that are kept. [1]"""
VIEWS: Final = 16
"""Answers in full that are kept, and that may wait: a page more than that is told to come again. [1]"""
_PEOPLE, _ROUTINE, _PAGE = range(3)  # whose turn it is first

Wanted: TypeAlias = Callable[[], bool]
"""Whether an answer is still wanted when its turn comes."""


def _always() -> bool:
    return True


class Outdated(Exception):
    """When its turn came, nobody wanted the answer any more."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A question that waits or is computed."""

    mark: bytes
    work: Callable[[Question], Any]
    question: Question
    future: asyncio.Future[Any]
    rank: int
    place: str
    memo: Recent[Any]
    started: bool = False
    wanted: list[Wanted] = field(default_factory=list)


class Decider:
    """`await answer(question)`: from memory, from a computation that runs already, or from a worker process.

    Questions that people wait for come before the routine, and a question whose asker has changed its mind when its turn
    comes is dropped: after a start with thousands of jobs, a new one is answered next, not last.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        deadline: float = DEADLINE,
        memory: int | None = None,
        kept: int = KEPT,
        bytes_of: Callable[[Question], bytes],
        work: Callable[[Question], Answer] = worker.answer,
        know: Callable[[Question], Unsearched | Answer] = worker.unsearched,
        draw: Callable[[Question], AdviceView | Refusal | None] = worker.view,
        warm: Callable[[], None] = worker.warm,
    ) -> None:
        """`bytes_of` tells questions apart; `work`, `know`, `draw` and `warm` run in worker processes.

        Each may have so much `memory`; missing = its part of the container's. [B]
        """
        memory = worker.memory_of(workers) if memory is None else memory
        self._bytes_of = bytes_of
        self._work = work
        self._know = know
        self._draw = draw
        self._answers: Recent[Answer] = Recent(kept)
        self._unsearched: Recent[Unsearched | Answer] = Recent(kept)
        self._views: Recent[AdviceView | Refusal | None] = Recent(VIEWS)
        self._asked: dict[bytes, _Asked] = {}
        self._pending: Turns[_Asked] = Turns(3)
        self._news = asyncio.Event()
        self._workers = [WorkerProcess(warm, deadline, memory) for _ in range(workers)]
        self._serving: list[asyncio.Task[None]] = []
        self.computed = 0
        """Answers that were computed. [1]"""
        self.count: Callable[[], None] = lambda: None
        """Told of each of them."""
        self.remembered = 0
        """Answers that came from memory or from a computation that was asked for already. [1]"""

    async def start(self) -> None:
        """Start the processes and let them import; answers may be asked for meanwhile."""
        await asyncio.gather(*(each.start() for each in self._workers))

    @property
    def is_warm(self) -> bool:
        """Whether a process is ready to answer."""
        return any(each.is_warm for each in self._workers)

    @property
    def is_busy(self) -> bool:
        """Whether an answer is computed or waited for."""
        return bool(self._asked)

    def known(self, question: Question) -> Answer | None:
        """The answer, where it is remembered."""
        mark = self._mark(question, b"answer")
        if mark not in self._answers:
            return None
        self.remembered += 1
        return self._answers[mark]

    async def answer(
        self, question: Question, *, place: str = "", urgent: bool = True, wanted: Wanted = _always
    ) -> Answer:
        """The answer to a job of the namespace `place`; raises `NoAnswer`, and `Outdated` where it is not `wanted` any more when its turn comes."""
        if (known := self.known(question)) is not None:
            return known
        mark = self._mark(question, b"answer")
        self.remembered += mark in self._asked
        found: Answer = await self._told(
            mark, self._work, self._answers, question, place, urgent, wanted
        )
        return found

    async def unsearched(
        self, question: Question, *, place: str = "", urgent: bool = True, wanted: Wanted = _always
    ) -> Unsearched | Answer:
        """What is known of the answer without a search, likewise."""
        mark = self._mark(question, b"unsearched")
        if mark in self._unsearched:
            return self._unsearched[mark]
        found: Unsearched | Answer = await self._told(
            mark, self._know, self._unsearched, question, place, urgent, wanted
        )
        return found

    async def _told(
        self,
        mark: bytes,
        work: Callable[[Question], Any],
        memo: Recent[Any],
        question: Question,
        place: str,
        urgent: bool,
        wanted: Wanted,
    ) -> Any:
        asked = self._ask(mark, work, memo, question, _PEOPLE if urgent else _ROUTINE, place)
        asked.wanted.append(wanted)
        return await asyncio.shield(
            asked.future
        )  # one who gives up must not take it from the others

    async def view(self, question: Question) -> AdviceView | Refusal | None:
        """The answer in full, None where there is none; raises `NoAnswer`, and `Outdated` where too many wait already."""
        mark = self._mark(question, b"view")
        if mark in self._views:
            return self._views[mark]
        if (
            mark not in self._asked
            and sum(one.rank == _PAGE for one in self._asked.values()) >= VIEWS
        ):
            raise Outdated
        asked = self._ask(mark, self._draw, self._views, question, _PAGE, "")
        asked.wanted.append(_always)
        found: AdviceView | Refusal | None = await asyncio.shield(asked.future)
        return found

    def _mark(self, question: Question, kind: bytes) -> bytes:
        return hashlib.blake2b(self._bytes_of(question), digest_size=16, person=kind).digest()

    def _ask(
        self,
        mark: bytes,
        work: Callable[[Question], Any],
        memo: Recent[Any],
        question: Question,
        rank: int,
        place: str,
    ) -> _Asked:
        """A question in its place: the one that is asked already, moved forward where it has become more urgent."""
        asked = self._asked.get(mark)
        if asked is None or rank < asked.rank:
            if asked is None:
                future = asyncio.get_running_loop().create_future()
                future.add_done_callback(_look_at)
                asked = self._asked[mark] = _Asked(mark, work, question, future, rank, place, memo)
            elif not asked.started:
                self._pending.lanes[asked.rank].remove(asked.place, asked)
            asked.rank = rank
            if not asked.started:
                self._pending.lanes[rank].push(asked.place, asked, 0.0)
                self._news.set()
        self._serving = self._serving or [
            asyncio.create_task(self._serve(each)) for each in self._workers
        ]
        return asked

    async def stop(self) -> None:
        """End the processes, whatever they do; whoever waits is cancelled."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for each in self._workers:
            each.stop()
        for asked in self._asked.values():
            asked.future.cancel()

    async def _serve(self, process: WorkerProcess) -> None:
        """Let one process answer one question after another."""
        while True:
            while (found := self._pending.take()) is None:
                self._news.clear()
                await self._news.wait()
            asked, _ = found
            asked.started = True
            try:
                if not any(wanted() for wanted in asked.wanted):
                    raise Outdated  # noqa: TRY301 - told like every other end
                told = await process.ask(asked.work, asked.question)
            except (NoAnswer, Outdated) as error:
                asked.future.set_exception(error)
            else:
                asked.future.set_result(told)
                if asked.memo is self._answers:
                    self.computed += 1
                    self.count()
                asked.memo[asked.mark] = told
            del self._asked[asked.mark]


def _look_at(future: asyncio.Future[Any]) -> None:
    """Where all who asked have gone, nobody else would look at the error."""
    if not future.cancelled():
        future.exception()

"""What the page shows: objects of the store, so only what the operator may read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mofa_model.errors import MofaError
from mofa_model.page import AdviceView
from mofa_model.spec.account import NodeTime
from mofa_operator.api import Api
from mofa_operator.api_errors import ApiError
from mofa_operator.control.answers import ModelPool, Outdated
from mofa_operator.control.references import References
from mofa_operator.control.worker_process import NoAnswer
from mofa_operator.decide.answer import is_quarantined
from mofa_operator.decide.policy import needs_answer
from mofa_operator.decide.stored_answer import as_answered
from mofa_operator.keys import CLUSTER_PROFILE, JOBS, TRAINING_JOB, Key
from mofa_operator.objects import LiveProfile
from mofa_operator.observe.cluster.bodies import is_output
from mofa_operator.observe.cluster.store import Store
from mofa_operator.observe.progress.telemetry import Asks
from mofa_operator.observe.progress.telemetry import curves as read_curves
from mofa_operator.page.job import ShownJob
from mofa_operator.snapshot import Curves, JobSnapshot, Refusal

PATIENCE: Final = 5.0
"""How long a page waits for an answer in full. [s]"""
SHORTLY: Final = 2.0
"""How long a page waits for a job's history. [s]"""
_CHUNK: Final = 50
"""Objects that are unpacked in one turn of the event loop. [1]"""


@dataclass(eq=False, kw_only=True)
class Pages:
    """The source of the page: it reads the store, and asks the model pool behind all others.

    `health` says how a job was last judged to do.
    """

    store: Store
    model_pool: ModelPool
    api: Api
    health: Callable[[Key], str]
    prometheus: Asks | None = None

    def __post_init__(self) -> None:
        self._references = References(self.api, self.store)

    async def jobs(self, namespace: str | None) -> list[ShownJob]:
        """Every job that is advised, of one namespace or of all."""
        jobs = []
        for number, key in enumerate(self.store.keys(*JOBS)):
            if namespace in {None, key.namespace} and (shown := self._advised(key)) is not None:
                jobs.append(shown)
            if number % _CHUNK == 0:
                await asyncio.sleep(0)
        return jobs

    def _advised(self, key: Key) -> ShownJob | None:
        """A job that has, or awaits, an outcome of ours."""
        job = self.store.live(key)
        if job is None or (key.kind != TRAINING_JOB and not any(map(is_output, job.annotations))):
            return None
        # Without the spec, because thousands of jobs may be listed.
        body = {name: part for name, part in job.body.items() if name != "spec"}
        return ShownJob(replace(job, body=body), self.health(key))

    def job(self, resource: str, namespace: str, name: str) -> ShownJob | None:
        """One job that is advised, with its account."""
        for kind in JOBS:
            if kind.resource == resource:
                shown = self._advised(key := Key(kind, namespace, name))
                return None if shown is None else replace(shown, account=self._account(key))
        return None

    def _account(self, key: Key) -> tuple[NodeTime, ...]:
        """What the ledgers say of a job, or of the one that a TrainingJob speaks for."""
        job = self.store.live(key)
        name = (key if job is None else job.trains).full_name
        profiles = self.store.profiles()
        return tuple(row for profile in profiles for row in profile.account if row.job == name)

    def profile(self, name: str) -> LiveProfile | None:
        """One profile."""
        return self.store.profile(name)

    async def profiles(self) -> list[LiveProfile]:
        """Every profile, by name."""
        profiles = []
        keys = sorted(self.store.keys(CLUSTER_PROFILE), key=lambda key: key.name)
        for number, key in enumerate(keys):
            if (profile := self.store.profile(key.name)) is not None:
                profiles.append(profile)
            if number % _CHUNK == 0:
                await asyncio.sleep(0)
        return profiles

    async def curves(self, resource: str, namespace: str, name: str) -> Curves | str:
        """What was predicted and seen of a job; a sentence where nobody can say."""
        if self.prometheus is None:
            return "No Prometheus is configured, so there is no history."
        key = next(Key(kind, namespace, name) for kind in JOBS if kind.resource == resource)
        try:
            async with asyncio.timeout(SHORTLY):
                return await read_curves(self.prometheus, key, time.time())
        except TimeoutError:
            return "Prometheus takes long to answer: the history is left out this time."
        except MofaError as error:
            return f"The history cannot be shown: {error}."

    async def view(
        self, resource: str, namespace: str, name: str, changes: Mapping[str, str]
    ) -> AdviceView | Refusal | str | None:
        """A job's answer in full with `changes`; a sentence where it comes later; else None."""
        key = next(Key(kind, namespace, name) for kind in JOBS if kind.resource == resource)
        try:
            named = await self._references.read(key)
            snapshot = self.store.snapshot(key, time.time(), named)
            if not isinstance(snapshot, JobSnapshot):
                return None
            if not needs_answer(snapshot) or is_quarantined(snapshot):
                return None
            question = replace(as_answered(snapshot.question, snapshot.job), changes=dict(changes))
            async with asyncio.timeout(PATIENCE):
                return await self.model_pool.view(question)
        except (TimeoutError, Outdated):
            return "The advice in full is still being computed: load this page again in a moment."
        except (NoAnswer, ApiError) as error:
            return f"The advice in full cannot be shown: {error}."

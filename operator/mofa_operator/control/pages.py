"""What the page shows: objects of the store, so nothing that the operator may not read."""

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
from mofa_operator.observe.progress.telemetry import Asks, curves
from mofa_operator.page.job import ShownJob
from mofa_operator.page.server import Source
from mofa_operator.snapshot import Curves, JobSnapshot, Refusal

PATIENCE: Final = 5.0
"""How long a page waits for an answer in full. [s]"""
SHORTLY: Final = 2.0
"""How long it waits for a job's history. [s]"""
_CHUNK: Final = 50
"""Objects that are unpacked at a time, so that a long list does not keep the loop. [1]"""


@dataclass(eq=False, kw_only=True)
class Pages:
    """The page's source: it reads the store, and asks the model pool behind everybody else.

    `health` says how a job was last judged to do.
    """

    store: Store
    model_pool: ModelPool
    api: Api
    health: Callable[[Key], str]
    prometheus: Asks | None = None

    def __post_init__(self) -> None:
        self._references = References(self.api, self.store)

    @property
    def source(self) -> Source:
        """What the routes ask."""
        return Source(
            jobs=self._jobs,
            job=self._job,
            view=self._view,
            curves=self._curves,
            profiles=self._profiles,
            profile=self.store.profile,
        )

    async def _jobs(self, namespace: str | None) -> list[ShownJob]:
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
        body = {
            name: part for name, part in job.body.items() if name != "spec"
        }  # thousands may be listed
        return ShownJob(replace(job, body=body), self.health(key))

    def _job(self, resource: str, namespace: str, name: str) -> ShownJob | None:
        for kind in JOBS:
            if kind.resource == resource:
                shown = self._advised(key := Key(kind, namespace, name))
                return None if shown is None else replace(shown, account=self._account(key))
        return None

    def _account(self, key: Key) -> tuple[NodeTime, ...]:
        """What ledgers say of a job, or of the one that its TrainingJob speaks for."""
        job = self.store.live(key)
        name = (key if job is None else job.trains).full_name
        profiles = self.store.profiles()
        return tuple(one for pool in profiles for one in pool.account if one.job == name)

    async def _profiles(self) -> list[LiveProfile]:
        profiles = []
        for number, key in enumerate(
            sorted(self.store.keys(CLUSTER_PROFILE), key=lambda key: key.name)
        ):
            if (profile := self.store.profile(key.name)) is not None:
                profiles.append(profile)
            if number % _CHUNK == 0:
                await asyncio.sleep(0)
        return profiles

    async def _curves(self, resource: str, namespace: str, name: str) -> Curves | str:
        """What was predicted and seen of a job; a sentence where nobody can say."""
        if self.prometheus is None:
            return "No Prometheus is configured, so there is no history."
        key = next(Key(kind, namespace, name) for kind in JOBS if kind.resource == resource)
        try:
            async with asyncio.timeout(SHORTLY):
                return await curves(self.prometheus, key, time.time())
        except TimeoutError:
            return "Prometheus takes long to answer: the history is left out this time."
        except MofaError as error:
            return f"The history cannot be shown: {error}."

    async def _view(
        self, resource: str, namespace: str, name: str, changes: Mapping[str, str]
    ) -> AdviceView | Refusal | str | None:
        """A job's answer in full with `changes`; a sentence where it comes later; else None."""
        key = next(Key(kind, namespace, name) for kind in JOBS if kind.resource == resource)
        try:
            named = await self._references.read(key)
            snapshot = self.store.snapshot(key, time.time(), named)
            if not isinstance(snapshot, JobSnapshot) or not needs_answer(snapshot):
                return None
            if is_quarantined(snapshot):
                return None
            question = replace(as_answered(snapshot.question, snapshot.job), changes=dict(changes))
            async with asyncio.timeout(PATIENCE):
                return await self.model_pool.view(question)
        except (TimeoutError, Outdated):
            return "The advice in full is still being computed: load this page again in a moment."
        except (NoAnswer, ApiError) as error:
            return f"The advice in full cannot be shown: {error}."

"""Jobs that many tests ask for."""

from dataclasses import replace

import pytest

from mofa_model.reliability.model import Job
from mofa_model.spec.reliability import (
    FailureMode,
    FailureRate,
    RecoveryTime,
    Reliability,
    paper_classes,
)


@pytest.fixture
def tiered_job():
    """A Llama-3-like job with local, peer and remote tiers; save times and rate can be changed."""

    def make(
        nodes=2048, blocking=(0.2, 1.0, 2.0), background=(0.0, 20.0, 240.0), rate=0.005, **more
    ):
        classes = tuple(
            replace(c, tier=min(i, len(blocking) - 1)) for i, c in enumerate(paper_classes(rate))
        )
        return Job(
            nodes=nodes,
            step_time=10.0,
            blocking=blocking,
            background=background,
            reliability=Reliability(classes=classes, **more),
        )

    return make


@pytest.fixture
def plain_job():
    """One tier, one class with a deterministic recovery, a rate per second that is known."""

    def make(rate, recovery=300.0, blocking=30.0, background=0.0, step=10.0, **more):
        rate_given = FailureRate(failures=0.0, exposure=1.0, exactly=rate)
        back = RecoveryTime(mean=recovery, law="deterministic")
        mode = FailureMode(name="job", rate=rate_given, recovery=back)
        return Job(
            nodes=1,
            step_time=step,
            blocking=(blocking,),
            background=(background,),
            reliability=Reliability(classes=(mode,), **more),
        )

    return make

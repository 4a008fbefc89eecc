"""The fence is proved before anything is written, and every hour; whatever else refuses or fails
proves nothing.
"""

import asyncio

import pytest
from virtual_time import run

from mofa_operator.api_errors import Busy, Gone, Refused
from mofa_operator.control.fence import AGAIN, HOURLY, PROBE, Fence, fence_failure
from mofa_operator.metrics.exporter import Exporter
from mofa_operator.settings import ApiSettings

HOLDS = Refused(
    "failureledgers.mofa.dev \"x\" is forbidden: ValidatingAdmissionPolicy 'mofa-advisor-fence' denied request"
)
ROLE = Refused('failureledgers.mofa.dev "x" is forbidden: User "a" cannot patch resource')


class Api:
    """Answers each write as told; the last answer stays."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def apply(self, kind, namespace, name, body, *, status=False, rehearsal=False):
        self.asked.append((name, rehearsal))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


def made(*answers, fence=True):
    api, exporter = Api(*answers), Exporter()
    return Fence(api, exporter, ApiSettings(fence=fence)), api, exporter


def exported(exporter):
    lines = exporter.page()[0].decode().splitlines()
    return next(
        (float(one.split()[1]) for one in lines if one.startswith("mofa_advisor_fence_holds ")),
        None,
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HOLDS, ""),
        (None, "a write that it must refuse was allowed"),
        (ROLE, "refused before it was asked"),
        (Gone("there is no such kind"), "cannot be asked"),
    ],
)
def test_only_the_policys_own_refusal_proves_it(answer, why):
    api = Api(answer)
    found = asyncio.run(fence_failure(api))
    assert why in found
    assert bool(why) == bool(found)
    assert api.asked == [(PROBE, True)], "and it is asked for as a rehearsal"


def test_nothing_begins_before_it_holds():
    async def main():
        fence, api, exporter = made(None, None, ROLE, HOLDS)
        loop = asyncio.get_running_loop()
        waiting = asyncio.create_task(fence.wait_until_proven())
        await asyncio.sleep(AGAIN / 2)
        assert fence.failure == "a write that it must refuse was allowed"
        assert exported(exporter) == 0.0
        await waiting
        assert (loop.time(), fence.failure, exported(exporter)) == (3 * AGAIN, None, 1.0)
        assert len(api.asked) == 4

    run(main())


def test_nobody_to_ask_is_no_proof_and_no_end():
    async def main():
        fence, _, exporter = made(Busy("no connection"))
        with pytest.raises(Busy):
            await fence.wait_until_proven()
        assert fence.failure
        assert exported(exporter) is None

    run(main())


def test_it_is_proved_every_hour_and_where_it_has_gone_the_operator_ends():
    async def main():
        fence, api, exporter = made(HOLDS, HOLDS, Busy("later"), HOLDS, None)
        await fence.wait_until_proven()
        began = asyncio.get_running_loop().time()
        with pytest.raises(Refused, match="was allowed"):
            await fence.run()
        assert asyncio.get_running_loop().time() - began == 3 * HOURLY + AGAIN
        assert len(api.asked) == 5
        assert exported(exporter) == 0.0

    run(main())


def test_where_no_fence_is_asked_for_nothing_is_asked():
    async def main():
        fence, api, exporter = made(None, fence=False)
        await fence.wait_until_proven()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fence.run(), 3 * HOURLY)
        assert (api.asked, fence.failure, exported(exporter)) == ([], None, None)

    run(main())

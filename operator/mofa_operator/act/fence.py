"""Whether the fence stands: a write that our roles allow and the fence forbids is asked for, as a rehearsal that changes nothing.

A ledger that no profile owns is such a write. Nobody but the admission policy can refuse it by name, so any other answer, also a
refusal by somebody else, proves nothing of the fence.
"""

from __future__ import annotations

from typing import Final

from mofa_operator.api import Api
from mofa_operator.keys import FAILURE_LEDGER
from mofa_operator.refusals import Gone, Invalid, Refused

PROBE: Final = "mofa-fence-proof"
"""Name of the ledger that is never made."""
_POLICY: Final = "ValidatingAdmissionPolicy"
"""Who refuses, as the API server names it."""


async def why_open(api: Api) -> str:
    """Why the fence does not hold; empty where it does. `Busy` comes out: then nobody knows."""
    body = {
        "apiVersion": FAILURE_LEDGER.api_version,
        "kind": FAILURE_LEDGER.kind,
        "metadata": {"name": PROBE},
    }
    try:
        await api.apply(FAILURE_LEDGER, "", PROBE, body, rehearsal=True)
    except Refused as error:
        return (
            ""
            if _POLICY in str(error)
            else f"what it must refuse was refused before it was asked: {error}"
        )
    except (Gone, Invalid) as error:
        return f"it cannot be asked: {error}"
    return "a write that it must refuse was allowed"

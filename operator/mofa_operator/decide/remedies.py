"""What would help a pool, as a part of its status: once a day its past is replayed, and the answer
stays until the next one. Pure.
"""

from __future__ import annotations

from typing import Final

from mofa_model.answers.what_would_help import MOST_TOLD, doubt_of, outcome_of, sentence_of
from mofa_model.units import DAY
from mofa_operator.decide.status import moment, significant, time_left
from mofa_operator.objects import LiveProfile, WrittenPart
from mofa_operator.snapshot import History, ProfileSnapshot

HELPS: Final = "whatWouldHelp"
"""Field of the status."""


def replay_is_due(profile: LiveProfile, now: float) -> bool:
    """Whether the last replay of a pool's past is a day old, or there was none. `now` in [s]."""
    return time_left(profile.status.what_would_help.time, DAY, now) <= 0


def what_would_help(snapshot: ProfileSnapshot) -> WrittenPart:
    """What would have helped a pool, as a part of its status: the newest answer, else the stored
    one; empty where there is none yet.
    """
    history = snapshot.history
    if not isinstance(history, History) or history.helps is None:
        return snapshot.profile.kept(HELPS)
    answer = history.helps
    row = {
        "outcome": outcome_of(answer).value,
        "doubt": doubt_of(answer),
        "days": _text(answer.window_days),
        "paidGpuHours": _text(answer.paid),
        "effectiveGpuHours": _text(answer.effective),
        "effectivePercent": round(100 * float(answer.effective_share)),
        "changes": [
            {
                "change": remedy.change,
                "gained": {
                    "lower": _text(remedy.gain.lower),
                    "target": _text(remedy.gain.target),
                    "upper": _text(remedy.gain.upper),
                },
                **({"paidGpuHours": _text(remedy.paid)} if remedy.paid > 0 else {}),
                "says": sentence_of(remedy, answer),
            }
            for remedy in answer.best(MOST_TOLD)
        ],
        "time": moment(history.at),
    }
    return {HELPS: {name: value for name, value in row.items() if value not in ("", [])}}


def _text(value: float) -> str:
    """A number to six digits, as a status has it; rounding errors about zero become zero."""
    return significant(round(value, 9), 6)

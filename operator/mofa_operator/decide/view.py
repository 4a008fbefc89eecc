"""An answer in full, for the page: from the same question and by the same calls as the answer itself.

Runs in a worker process, behind every answer. What cannot be understood has no view; its explanation is on the job.
"""

from __future__ import annotations

from mofa_model.advice import advise
from mofa_model.errors import MofaError
from mofa_model.manifest.asked import request_of
from mofa_model.manifest.launches import launch_words
from mofa_model.page import AdviceView, view_of
from mofa_operator.decide.asked import asked
from mofa_operator.snapshot import Question


def view(question: Question) -> AdviceView | None:
    """The answer to a question with everything that a page draws of it; None where there is no answer."""
    try:
        request = request_of(asked(question))
        advice = advise(request)
        return view_of(request, advice, tuple(launch_words(request, advice)))
    except MofaError:
        return None

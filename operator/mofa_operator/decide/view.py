"""An answer in full, for the page: from the same question and by the same calls as the answer itself.

Runs in a worker process, behind every answer. A job's own question that cannot be understood has no view, because its explanation
is on the job; one that somebody changed is answered with what cannot be right in it.
"""

from __future__ import annotations

from mofa_model.advice import advise
from mofa_model.errors import MofaError
from mofa_model.manifest.jobs import request_of
from mofa_model.manifest.launches import launch_words
from mofa_model.page import AdviceView, view_of
from mofa_operator.decide.asked import asked
from mofa_operator.decide.changed import Unanswerable, by_parameter, changed
from mofa_operator.snapshot import Question, Refusal


def view(question: Question) -> AdviceView | Refusal | None:
    """The answer to a question with everything that a page draws of it; None where there is no answer."""
    try:
        found = asked(question)
        request = request_of(changed(found, question.changes) if question.changes else found)
        advice = advise(request)
        return view_of(request, advice, tuple(launch_words(request, advice)))
    except Unanswerable as error:
        return Refusal(error.why)
    except MofaError as error:
        return Refusal(by_parameter(error)) if question.changes else None

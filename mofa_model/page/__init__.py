"""Answers as pages of plain HTML and SVG, without scripts and without other files.

May import: advice, reliability, tables and what stands below. Imported by: answers, verbs, and the
operator's page.

markup    elements, forms, and the frame of a page
figures   pictures as SVG, each with the same numbers as text
advice    the sections of one advice
what_if   the first page of `mofa ui`, and the view of an answer in a notebook
paste     the page of `mofa ui` for pasted texts and files
which     the page of `mofa ui` with the GPUs of a fine-tune
"""

from mofa_model.page.advice import (
    AdviceView,
    advice_page,
    advice_sections,
    brief_list,
    folded,
    in_short,
    view_of,
)

__all__ = [
    "AdviceView",
    "advice_page",
    "advice_sections",
    "brief_list",
    "folded",
    "in_short",
    "view_of",
]

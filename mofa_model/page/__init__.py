"""Answers as pages of plain HTML and SVG, without scripts and without other files.

May import: advice, reliability, tables and what stands below. Imported by: answers, verbs, and the
operator's page.

markup    elements, forms, and the frame of a page
figures   pictures as SVG, each with the same numbers as text
advice    one advice: what a page needs of it, and its sections
what_if   the page of `mofa ui`, and what a notebook shows
paste     the page of `mofa ui` that reads what people have
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

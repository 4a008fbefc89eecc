"""Answers as pages of plain HTML and SVG: no script, no other file, readable in the dark and by a screen reader.

May import: advice, explain, reliability, tables and what stands below. Imported by: verbs, and the operator's page.

    markup    elements, and the frame of a page
    figures   pictures as SVG, each with the same numbers as text
    view      what a page says of one advice: plain values
    advice    that view as a page
"""

from mofa_model.page.advice import advice_page, advice_sections, in_short
from mofa_model.page.view import AdviceView, view_of

__all__ = ["AdviceView", "advice_page", "advice_sections", "in_short", "view_of"]

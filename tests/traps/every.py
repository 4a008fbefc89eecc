"""Small histories with one trap each, by what they are about.

MADE     written down as what was scraped (`small_histories.py`)
ACTED    what happened, and what hosts, controllers and trainers make of it (`site_histories.py`)
"""

from traps import nodes, exits, late, stories, sites, acted_later, acted_apart, acted_apart_second  # noqa: F401, I001 - in the order in which they were written
from traps import swapped  # noqa: F401 - after them
from traps.acted import TRAPS as ACTED
from traps.kept import MADE

__all__ = ["ACTED", "MADE"]

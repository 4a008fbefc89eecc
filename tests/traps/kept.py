"""Traps as they are kept: a function that makes a history, in the order in which they
were written.
"""

from small_histories import Cluster

MADE = []


def vignette(note, late=False, **more):
    """Keep a function that tells what happens to a cluster; its number names it, and draws what
    is drawn.
    """

    def keep(function):
        def make(number):
            c = Cluster(f"w{number:02d}", note, not late, **more)
            function(c)
            return c

        MADE.append(make)
        return function

    return keep

"""A training run under failures, event by event: a check of `reliability`, and a digital twin to
look at.

    scenario  what is simulated, and the draws of its random times
    engine    many replicas in arrays, each at its own time, each moved to its own next event
    planned   a job under a recovery plan: its nodes, replicas, spares and copies, one by one
    pool      jobs that share nodes: a queue with priorities, repairs and spares
    runs      runs of a given length: distribution, lost time by cause, the timeline of one of them

It shares no formula with `reliability`, so that agreement means something: it knows only what
happens next. May import: spec, units, errors. Never imports: reliability. Imported by: verbs, and
the lab, which proves `reliability` with it.
"""

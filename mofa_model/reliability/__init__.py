"""Failures, recoveries and checkpoints: how much of the wall time becomes training, and how sure
that is.

    paper       the paper's closed form, Eqs. (36)-(44)
    laws        laws of recovery times and of the time between failures
    checkpoint  how long saves take, and when those of nested tiers become durable
    renewal     the exact model of one tier: closed form for Poisson failures, optimum, scatter
    tiers       the exact model of nested tiers
    model       ETTR of a job, by the form that is exact for it, with its band and its losses
    recovery    what a recovery plan makes of a job: spares, peers, replicas that go on, shrinking
    interval    the best interval, restarts, a watchdog for hangs
    deadlines   time to finish; nodes and spares for a deadline
    prospects   what the next days bring: interruptions, ETTR, finish date; whether bands held
    replay      standstills of a past under a recovery plan
    lemon_nodes nodes that surely fail more often than others
    remedies    what would have helped a pool: its past through plans and other alternatives
    rates       posterior of a failure rate
    forecast    failures of the next days, where rates move
    assumption  whether an assumed rate still stands, by days
    observed    the whole check of a pool

May import: spec, units, errors, numpy. Never
imports: simulator. Imported by: search's callers, advice, verbs, and the lab.
"""

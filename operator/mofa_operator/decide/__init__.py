"""Snapshot to Decision: pure, without clock, cluster or event loop; the only room that asks the model's search.

May import: objects, evidence, snapshot, decision, settings, keys, words, mofa_model. Imported by: control.

    stance      what a job wants of us: an answer, a removal, to be left alone          needs_answer(snapshot)
    asked       a question as it is understood: spec, profile, request                  asked(question)
    answer      Question to Answer, in a worker process; the heavy half                  answer(question), warm()
    policy      PolicySnapshot to Decision                                               policy(snapshot)
    view        the same answer in full, for the page; changed: with something different in it  view(question)
    job         JobSnapshot and Answer to Decision; the light half                       job(…), failed(…)
      outputs       annotations: what should stand, what should go
      release       mode Apply: arguments for a job that waits, and our gate        with_release(…), overdue(…)
        gates, arguments
      observation   what a running job does, as it is shown
      news          the one Event that a decision may be worth
      teaching      what a running job teaches its profile; learned makes one factor of it
    profile     ProfileSnapshot to Decision                                             profile(snapshot, settings)
      history       what this look says of the past, judged
        ledger      days and witnesses, and what they come to
        pool_evidence   what a profile remembers
      rates         posterior, verdicts, columns
    conditions  conditions of our objects
    reading     moments and messages as text, and whether two states are the same
"""

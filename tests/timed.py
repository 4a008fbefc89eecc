"""Recoveries of a job as tests compare them."""

from mofa_operator.observe.jobs.run_record import evidence


def recoveries(life):
    """Finished recoveries by class: how many, and their time together. [1, s]"""
    told = evidence(life).items()
    return {name: (one.recoveries, one.recovery_seconds) for name, one in told if one.recoveries}

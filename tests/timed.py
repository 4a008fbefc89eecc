"""Recoveries of a job as tests compare them."""

from mofa_operator.observe.jobs.run_record import evidence


def recoveries(life):
    """Finished recoveries by class: how many, and their time together. [1, s]"""
    kinds = evidence(life).items()
    return {
        name: (kind.recoveries, kind.recovery_seconds) for name, kind in kinds if kind.recoveries
    }

"""One test of many small cases, where a test for each would cost more than what it asserts."""


def each(cases):
    """Runs a test for every case, arguments or a `pytest.param`; all cases that fail are told
    together, each by its name.
    """
    named = [(getattr(case, "id", case), getattr(case, "values", case)) for case in cases]
    assert named

    def of(test):
        def over_all():
            failed = []
            for name, arguments in named:
                try:
                    test(*arguments)
                except Exception as problem:  # noqa: BLE001 - whatever it is, the other cases are run
                    problem.add_note(f"in {name}")
                    failed.append(problem)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(named)} cases", failed)

        over_all.__name__, over_all.__doc__ = test.__name__, test.__doc__
        return over_all

    return of

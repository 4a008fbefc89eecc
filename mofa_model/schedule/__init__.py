"""Pipeline schedules as data (`orders`), and the one replay that runs them all (`replay`).

May import: spec, strategy, units, errors, numpy. Imported by: explain and validate; tests prove the closed forms by it.
"""

"""Fits the constants of presets to measured runs, reproducibly, and says how well they transfer.

May import: validate, estimate, presets, spec, strategy, units, errors; scipy is not needed. Imported by: verbs.

    free      which constants may move, in which section of constants.toml, from which prior (priors.toml)
    problem   cases + free constants -> predictions and their derivatives, all rows at once
    fit       robust least squares with priors
"""

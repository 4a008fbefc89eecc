"""Fits the constants of presets to measured runs, reproducibly, and says how well they transfer.

May import: bands, validate, estimate, presets, spec, strategy, units, errors; scipy is not needed. Imported by: verbs.

    free       which constants may move, in which section of constants.toml, from which prior (priors.toml)
    problem    cases + free constants -> predictions and their derivatives, all rows at once
    fit        robust least squares with priors
    evidence   measured figures of cases as two problems, times and memory, with weights
    folds      fits that leave runs out, and what they say of these
    campaign   all of it: fit, cross-validate, round, compare with what is shipped
    writer     constants.toml;  widths: bands.toml, from residuals of left-out runs
    figures    errors, regret and out-of-memory calls of a calibration
    runs, logs a user's own runs or trainer's log -> factors over the shipped constants (runs.toml)
    unseen     what one run of a stack is worth;  ablate: what an effect is worth (effects.toml)
    suspects   runs that look wrong, with the reason (suspects.toml)
    report     docs/validation.md, in sections (report_runs, report_constants), and its plots
"""

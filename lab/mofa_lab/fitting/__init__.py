"""Fits the shipped constants to case files, reproducibly, and says how well they transfer.

May import: validate, and of the product advice, calibrate, bands, estimate, presets, spec,
strategy, units, errors. Imported by: verbs.

    priors     which constants may move, in which section of constants.toml, from which prior
               (priors.toml)
    folds      fits that leave runs out, and what they say of these;  sets: runs whose errors are
               summed up together
    campaign   all of it: fit, cross-validate, round, compare with what is shipped
    writer     constants.toml;  coverage: the table of measured runs, and how many of them their
               bands hold
    tuned      fine-tuning runs in that table, and how many of them their bands hold
    sizes      sizes that are picked for jobs, against what was measured to fit
    spreads    variance.toml, from the errors of runs that were left out
    figures    errors, regret and out-of-memory calls of a calibration
    unseen     what one run of a stack is worth;  ablate: what an effect is worth (effects.toml)
    suspects   runs that look wrong, with the reason (suspects.toml)
    report     docs/validation.md, in sections (report_runs, report_constants), and its plots;
               report_evidence: docs/evidence.md
"""

"""Fits the constants of presets to measured runs; here to a user's own, as factors over the shipped ones.

May import: advice, bands, estimate, presets, spec, strategy, units, errors; scipy is not needed. Imported by: verbs, the operator (system alone) and the lab.

    runs, logs a user's own runs or trainer's log -> factors over the shipped constants (runs.toml), for its chip alone
    short_runs runs of a question's own layouts -> the question with what they say
    system     what runs of one system say together, in one number: at the desk and in the cluster
    cases      one measured run, and which constants it asks for
    batches    cases of one kind -> one set of arrays, so that thousands are priced in one pass
    free       constants that may move, each in a section of constants.toml, from a prior
    problem    cases + free constants -> predictions and their derivatives, all rows at once
    evidence   measured figures of cases as two problems, times and memory, with weights
    fit        robust least squares with priors
    written    entries as the text of a constants file
"""

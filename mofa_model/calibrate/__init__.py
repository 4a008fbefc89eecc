"""Fits the constants of presets to measured runs; here to a user's own, as factors over the shipped
ones.

May import: advice, bands, estimate, presets, spec, strategy, units, errors.
Imported by: verbs, the operator (system alone) and the lab.

    runs        a user's own runs or trainer's log -> factors of its system alone
    short_runs  runs of a question's own layouts -> the question with what they say
    cases       one measured run and the constants it asks for; thousands as a few sets of arrays
    constants   constants that a fit may move, and their text in a constants file
    fit         robust least squares with priors over measured figures of cases
"""

"""MoFa Advisor's lab: what makes and proves the constants of the cost model, and no cluster ever
runs.

    verbs      mofa fit, mofa trace, mofa validate: `mofa` finds them through the entry-point group
               `mofa.verbs`
    fitting    the shipped constants from case files, cross-validated
    validate   predicted against measured: runs, reliability, the paper's tables
    traces     profiler traces: read, replayed, learned from

May import: everything in `mofa_model`. Nothing of the product imports it.
"""

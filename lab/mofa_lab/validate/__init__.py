"""Predicted against measured: case files in, figures of merit out.

    record     one JSON object, read with checks
    cases      record -> Case: workload, cluster, strategy, what was measured, which calibration it
               asks for
    facts      record -> network, formats, machines, layout
    wording    how sources word what a stack does; `wording.toml` holds the words
    conventions  throughput, TFLOPS and utilisation -> step time, each by the case's own convention
    steps      runs the estimate over cases;  score: errors, regret, out-of-memory counts
    ettr_cases facts on ETTR, intervals and rates against `reliability`;  ettr_kinds: one function
        for each kind of them
    odds       what the rule picks for published jobs, and how true its odds are;  odds_report: the
               same as a section
    forms      what published facts ask beside the model;  exposure: what scraped samples amount to;
               aging: fresh fleets
    ettr_grid  the exact reliability model against the simulator;  simulated: ETTR to a wanted
               standard error
    paper      the printed tables of the MoFa paper against its own equations (paper_equations,
               constants in paper.toml),
               and its six measured runs as the estimate prices them (paper_runs)
    forecast   predictions that are written down before their results, and their scores

May import: everything of the product below its command line. Imported by: fitting, verbs.
"""

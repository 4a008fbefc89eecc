"""How sure an estimate is, from measured runs and how near they are.

    coordinates   where a run stands, and how far two are apart
    table         measured runs as columns (runs.tsv.gz), with the user's own; their support:
                  features that a stack is known with, and how far a value is beyond them
    variance      how far a step or memory may lie from its estimate: noise, system and layout
    odds          bands, the odds that a layout fits or is faster, and what short runs add
    system        what runs of one system say together, in one number: at the desk and in the
                  cluster
    evidence      what a prediction rests on, in words

May import: presets, strategy, spec, errors, units. Imported by: advice, explain, calibrate, and the
lab.
"""

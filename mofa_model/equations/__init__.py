"""The equations of the cost model: pure functions, one per equation, for scalars and arrays alike.

May import: spec, strategy, units, errors, numpy. Imported by: estimate, search, validate and what
else needs a number.

    parameters   how many weights, how many FLOPs                compute       operators on a device
    collectives  communication on a path            overlap    what of it stays exposed
    host         launches                           memory     what a device and its host hold
    optimizers   an update on whole matrices        routing    tokens to experts, experts in chunks

Closed forms of the pipeline stand with their schedules (`mofa_model/schedules/`).
"""

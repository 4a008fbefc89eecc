"""The verbs of the lab: one file each, as `mofa_model.verbs` says.

May import: everything in `mofa_lab` and `mofa_model`. Imported by: `mofa_model.cli`, through the
entry-point group `mofa.verbs`.
"""

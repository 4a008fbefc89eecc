"""Snapshot to Decision: pure, without clock, cluster or event loop; the only room that asks the model's search.

May import: snapshot, decision, keys, words, mofa_model. Imported by: control.
"""

"""The only room that reads a cluster or Prometheus; what it saw goes on as one frozen snapshot.

May import: api, settings, objects, evidence, snapshot, keys, words, mofa_model. Imported by: control, verbs.
"""

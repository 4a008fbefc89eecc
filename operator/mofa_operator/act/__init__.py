"""The only room that writes to a cluster: what a Decision says, and nothing else.

May import: api, settings, objects, decision, keys, words, mofa_model. Imported by: control.

writes      a decision as writes: annotations, then Events, then the status
release     jobs that wait are released: our gate, and AdmissionChecks of Kueue
retries     writes that somebody keeps undoing, and writes whose answer was lost
events      Events, one for each (object, reason, inputs hash)
"""

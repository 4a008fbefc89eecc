"""The only room that writes to a cluster: what a Decision says, and nothing else.

May import: api, settings, decision, keys, words, mofa_model. Imported by: control.

perform     a decision as writes: annotations, then the status, then Events
events      Events, one for each (object, reason, inputs hash)
"""

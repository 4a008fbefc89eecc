"""The only room that writes to a cluster: what a Decision says, and nothing else.

May import: api, settings, objects, decision, keys, words, mofa_model. Imported by: control.

perform     a decision as writes: annotations, then Events, then the status
release     a job that waits is let go: its arguments, then our gate
undone      what somebody undoes again and again is put back after waits that double
fence       whether the admission policy refuses what is not ours to write: a rehearsal
events      Events, one for each (object, reason, inputs hash)
"""

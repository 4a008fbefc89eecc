"""The only room that writes to a cluster: what a Decision says, and nothing else.

May import: api, settings, decision, keys, words. Imported by: control.
"""

"""The command-line verbs of this distribution, one file each.

May import: everything. Imported by: nothing.
"""

"""One file a command-line verb of this distribution: `mofa operator` and `mofa observe`, found by entry points.

May import: everything. Imported by: nothing.
"""

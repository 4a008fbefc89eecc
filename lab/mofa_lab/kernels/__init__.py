"""Kernels: surfaces from tables of measured calls, and how well they hold.

May import: mofa_model. Imported by: fitting (for its report) and verbs.

`tables` says of each row which operator it is and what it is called with; `fit` makes a surface of
the calls of one operator in one form on one device; `device` makes and writes a device's; `score`
compares, with families or devices left out where asked.
"""

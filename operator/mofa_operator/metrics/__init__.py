"""What the operator exports, declared once: names, labels, help, and when a series goes.

May import: decision, snapshot, keys, words, settings, prometheus_client. Imported by: control.
"""

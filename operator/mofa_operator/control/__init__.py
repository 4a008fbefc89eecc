"""The loop: events in, a rate-limited queue, observe, decide, act; lease, health and an orderly stop.

May import: everything below, and kopf. Imported by: verbs.
"""

"""What the operator exports, declared once: names, labels, help, and when a series goes.

May import: decision, snapshot, keys, words, settings, prometheus_client. Imported by: control.

declared    the table of every metric; docs/metrics.md, deploy/rules and deploy/grafana are held to it
series      figures of one object to samples
exporter    keeps the latest figures, counts, and answers a scrape
"""

"""What the operator exports, declared once, with what each metric reads.

declared    the table of every metric; docs/metrics.md, deploy/rules and deploy/grafana follow it
counts      histograms and counters, which only grow
exporter    keeps the latest figures and answers a scrape
"""

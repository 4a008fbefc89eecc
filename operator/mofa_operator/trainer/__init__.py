"""What runs beside a training job: follows its log and serves the trainer series.

May import: mofa_model, prometheus_client. Imported by: verbs.
"""

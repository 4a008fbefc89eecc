"""The dashboards as code: `make dashboards` writes deploy/grafana/*.json. Needs
grafana-foundation-sdk, of the dev extra.

parts         what all dashboards are made of: variables, queries, panels
fleet         all jobs and pools
job           one job: predicted against observed
assumptions   one pool: what is assumed of failures, and what history says
advisor       the operator's own health
"""

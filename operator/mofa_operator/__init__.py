"""The operator: watches a cluster, asks `mofa_model`, and writes the answer down.

May import: mofa_model, kopf, aiohttp, kubernetes, prometheus_client.
Imported by: nothing; found by entry points.

words         names that others see: conditions, reasons, kinds of Events
keys          kinds of objects, and names of objects
evidence      failures and steps that were counted, as they are remembered
incidents     from series to incidents, each with its cause and its evidence; pure
objects       objects of the cluster as types, with what is read of specs and statuses
workloads     Kueue's Workload as a type
snapshot      what was observed of one object at one moment: frozen and complete
settings      the operator's options
decision      what is to be written for one object: frozen, and nothing is done yet
api           requests to the API server; api_errors: what its refusals mean
credentials   kubeconfig, or the pod's account
lru_cache     a cache of bounded size
observe       the only room that reads a cluster or Prometheus
decide        Snapshot to Decision; pure; the only room that asks the model's search
act           the only room that writes to a cluster
metrics       the metrics of /metrics
page          the operator's web page
trainer       the exporter that runs beside a training job
control       the loop: watches, queue, reconcile, lease, health
fleet         what kubectl mofa shows of a cluster
verbs         the command-line verbs of this distribution
kubectl       the program kubectl-mofa
"""

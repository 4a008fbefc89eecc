"""The operator: watches a cluster, asks `mofa_model`, and writes the answer down.

May import: mofa_model, kopf, aiohttp, kubernetes, prometheus_client. Imported by: nothing; found by
entry points.

words       names that others see: conditions, reasons, kinds of events keys        kinds of
objects, and which object is meant evidence    what was seen of failures and steps, as it is
remembered objects     objects of the cluster as types, and what is read of their specs and statuses
api         the API server (api_errors: its refusals; credentials: who we are; lru_cache: what was
asked for lately) settings    what the operator is told when it starts snapshot    what was seen:
frozen, complete, with the moment in it decision    what to do about it: frozen, and nothing is done
yet observe     the only room that reads a cluster or Prometheus decide      Snapshot to Decision;
pure; the only room that asks the model's search act         the only room that writes to a cluster
metrics     what is exported control     the loop: queue, reconcile, lease, health trainer     the
exporter that runs beside a training job verbs       `mofa operator` and `mofa observe`
"""

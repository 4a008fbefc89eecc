"""The only room that reads a cluster or Prometheus; it hands on what it saw as a frozen snapshot.

    cluster      objects of the API server as last seen, and the snapshot of one of them
    nodes        what is kept of nodes, and the count of a pool
    jobs         pods of running jobs, their interruptions, and the record of a run
    progress     steps, tokens per second and telemetry of running jobs
    history      failures of a pool: from Prometheus, and from the watch
    prometheus   the client, its queries, and the series of trainers

A sample becomes an ETTR through these records; each adds facts to those before it:

    Sample ─▶ SignalTimeline, PodTimeline  runs of equal values          history.{node,pod}_series
      ─▶ PoolSamples ─▶ PoolTimelines      pieces of a pool's window     history.pool_samples
      ─▶ Incident ─▶ Past                  what happened, why, exposure  incidents
      ─▶ History                           evidence by class and by day  history.history
      ─▶ ClusterProfile.status ─▶ mofa_model.reliability ─▶ ETTR

May import: api, settings, objects, evidence, incidents, snapshot, keys, words, mofa_model.
Imported by: control, fleet, page, verbs.
"""

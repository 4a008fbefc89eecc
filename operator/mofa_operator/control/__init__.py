"""The loop: events in, a rate-limited queue, observe, decide, act; lease, health and an orderly stop.

May import: everything below, and kopf. Imported by: verbs.

run          in which order everything starts and stops
watches      all watches, each by itself            watch        one of them
handlers     another, by kopf          resync       full lists against what watches miss
intake       where news come in        queue        which objects wait to be looked at
reconcile    the loop over one object  answers      whether what stands still holds, else a search
decider      answers from worker processes (process: one of them; worker: what runs in it)
gates        the bound on waits in mode Apply   checks   Workloads before admission   hands   who takes from a queue of its own
rounds       something for every object, again and again
histories    what history says of a profile
job_observer what running jobs do      pool_observer    what the watch sees of every pool
named        what jobs name           kinds        which kinds are looked at
lease        election of one of several operators
stop         the end, in order or by force          tasks        tasks of the event loop
health       what probes are told      serve        the HTTP servers           logs   text and JSON
visitors     connections of our ports  admission    who may see what is served fence  proved before anything is written
pages        what the page shows
"""

"""The loop: changes in, a work queue, observe, decide, act; Lease, health and an orderly end.

May import: everything below, and kopf. Imported by: verbs.

run              the order in which everything starts and stops
shutdown         the end, in order or by force
handlers         our own kinds, by kopf
watches          nodes and kinds of other projects; restarts of every watch
resync           full lists, compared with what watches brought
enqueuer         stores what watches bring, and queues keys
work_queue       which objects wait to be reconciled
reconcile        what is done about one object
answers          answers from memory, from objects or from a search
worker_process   the process in which the model searches
gates            jobs that wait at our gate, and Workloads that wait for our AdmissionCheck
observers        histories, running jobs and pools, observed again and again
references       objects that jobs name
lease            election of one of several operators
fence            the check of the admission policy, before anything is written
health           what probes are told
http_server      metrics, page and probes
pages            what the page shows
logs             text and JSON
"""

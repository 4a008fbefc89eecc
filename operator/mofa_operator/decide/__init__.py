"""From snapshots to decisions: pure, and the only room that asks the model.

policy          whether a job is to be advised, and the status of an AdvisorPolicy
question        a job's question, understood as a TrainingJob with its ClusterProfile
answer          question to answer, in a worker process: the heavy half
stored_answer   the answer that an object already carries
job             a job's snapshot and its answer to a decision: annotations, status, figures
observation     what a running job does, against what was predicted of it
calibration     what running jobs teach about the step time and memory of their pool
release         mode Apply: launch arguments for a job that waits, and its gate
admission       Kueue's AdmissionCheck: what we say of a Workload
events          the Event of a decision
pool            a ClusterProfile's snapshot to a decision: nodes, size, history
history         what Prometheus says of failures, judged, and the rates that follow
ledger          days and weeks of evidence of failures, and their sum
status          conditions, and text of moments and messages
"""

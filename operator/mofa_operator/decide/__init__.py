"""From snapshots to decisions: pure, and the only room that asks the model.

policy          whether a job is to be advised, and the status of an AdvisorPolicy
question        a job's question, as that of a TrainingJob with its ClusterProfile
answer          the model's answer to a question; in a worker process
stored_answer   the answer that an object already has
job             what to write about a job: annotations, status, figures
observation     what a running job does, compared with its prediction
launched        what the pods of a job run, compared with what was advised
calibration     what running jobs teach about the step time and memory of their pool
release         mode Apply: launch arguments for a job that waits, and its gate
admission       Kueue's AdmissionCheck: what we say of a Workload
events          the Event of a decision
pool            what to write about a ClusterProfile: nodes, size, history
pool_size       the size of a pool, for which jobs without a number of nodes are advised
history         whether the failure history can be believed, and the rates that follow
ledger          days and weeks of evidence of failures, and their sum
forecasts       forecasts of a pool and its jobs, and when a running job will finish
remedies        what would help a pool, once a day
status          conditions, and text of moments and messages
"""

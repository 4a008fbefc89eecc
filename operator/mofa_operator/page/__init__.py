"""A read-only page: jobs with predicted and observed, their advice, and pools.

job       one job: predicted, observed, its last day, and the form that asks for other values
jobs      the list of jobs, those in most trouble first
profiles  the list of ClusterProfiles, and one of them
server    routes, and the runbooks
"""

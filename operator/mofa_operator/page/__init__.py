"""A small read-only page: jobs with predicted and observed, one job's breakdown, profiles with assumed and observed.

May import: objects, snapshot, keys, words, mofa_model, aiohttp. Imported by: control.

    jobs      one job
    listed    the list of jobs: search, most trouble first
    history   a job's last day: predicted and observed
    what_if   the form beside a job
    profiles  the list of profiles, and one profile
    server    the routes; what they show comes from functions that are handed in
"""

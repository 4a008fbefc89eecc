"""A small read-only page: jobs with predicted and observed, one job's breakdown, profiles with assumed and observed.

May import: objects, snapshot, keys, words, mofa_model, aiohttp. Imported by: control.

    jobs      the list of jobs, and one job
    profiles  the list of profiles, and one profile
    server    the routes; what they show comes from functions that are handed in
"""

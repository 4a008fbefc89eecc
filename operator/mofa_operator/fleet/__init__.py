"""A cluster as a person sees it: what its jobs lose, and what our installation lacks.

Reads, and writes nothing; `verbs` prints what comes out. The operator does not use this room.

    fleet      jobs, pools, policies and nodes, each listed once; which job a person means by a name
    survey     all jobs with their answers; jobs without one are answered here
    spending   GPU-hours of one job, held and lost, and what would win them back; pure
    site       our installation, read once, and the rights of its account
    findings   what a check found, and the command that mends it
    checks     what our installation lacks; pure
    pools      the pools of a cluster, and what they, policies and jobs lack; pure
    series     which series Prometheus has
"""

"""A cluster as a person sees it through their own kubeconfig: what its jobs cost and lose, and what our installation lacks.

Reads and nothing else; `verbs` prints what comes out. The operator does not use this room.

    fleet      everything that tells of jobs, read once
    answers    advice for jobs that nobody has answered yet
    spending   GPU-hours of one job: held, and lost to what; pure
    naming     which job a person means
    site       our installation and what stands around it, read once
    findings   what a check found; pure
    checks     what is missing, and the command that mends it; pure
    series     the same of Prometheus
"""

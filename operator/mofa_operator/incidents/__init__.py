"""What failed, why, and what did not: from time lines to incidents, each with its cause and its evidence. Pure.

May import: mofa_model. Imported by: observe, verbs.

    NodeTimeline ─▶ node_incidents ─▶ domains ─┐
    PodTimeline ─▶ job_outages ─▶ job_incidents ◀┴─▶ Incident ─▶ Past
"""

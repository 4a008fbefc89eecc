"""What failed, why, and what did not: from samples to incidents, each with its cause and its evidence. Pure.

May import: mofa_model. Imported by: observe, verbs.

    runs ─▶ NodeLife ─▶ node_incidents ─▶ domains ─┐
    PodLife ─▶ episodes ─▶ job_causes ◀────────────┴─▶ Incident
"""

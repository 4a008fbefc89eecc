"""What failed, why, and what did not: from time lines to incidents with causes and evidence. Pure.

May import: mofa_model. Imported by: observe, verbs.

    NodeTimeline ─▶ node_incidents ─▶ seen_by_observer ─▶ domains ──────┐
    PodTimeline ─▶ job_outages ─▶ job_causes (blame) ─▶ job_incidents ◀─┴─▶ Incident ─▶ Past
"""

def test_two_clean_runs_end_alike(cluster, processes, clean):
    from faults.campaign import play
    again = play("clean again", cluster, processes, clean=clean)
    assert again.events == clean.events
    print(clean.events); print(clean.writes); print(again.writes, again.attempts)
    import json; print(json.dumps(clean.phases[-1], indent=1)[:9000])

"""`doctor` names who may say that he is somebody else, and nobody who is trusted to."""

from types import SimpleNamespace

from operator_objects import profile, profile_with

from mofa_operator.fleet.checks import checks
from mofa_operator.fleet.site import Site


def monitor(kind, namespace, endpoints, *, honour):
    field = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}[kind]
    told = [{"port": "a"}, {"port": "b", "honorLabels": honour}] if endpoints else []
    return {"kind": kind, "metadata": {"namespace": namespace, "name": "m"}, "spec": {field: told}}


def said(*monitors):
    pools = [profile_with(profile(prometheus={"exporterNamespaces": ["exporters"]}))]
    fleet = SimpleNamespace(store=SimpleNamespace(profiles=lambda: pools))
    site = Site(fleet=fleet, definitions={}, installed={}, pods=(), refused={}, monitors=monitors)
    found = []
    for one in checks(site):
        if one.about == "scraping":
            found.append((one.weight.value, one.finding.partition(" has ")[0], one.mend))
        if one.about == "pools":
            break
    return found


def test_a_tenants_monitor_that_honours_labels_is_named_with_the_command_that_mends_it(monkeypatch):
    monkeypatch.setattr("mofa_operator.fleet.checks.pool_checks", lambda _: ())
    monkeypatch.setattr("mofa_operator.fleet.checks._operators", lambda _: ())
    monkeypatch.setattr("mofa_operator.fleet.checks._definitions", lambda _: ())
    evil = monitor("PodMonitor", "evil", True, honour=True)
    assert said(
        evil,
        monitor("ServiceMonitor", "ml", True, honour=False),
        monitor("ServiceMonitor", "ml", False, honour=True),
        monitor("ServiceMonitor", "exporters", True, honour=True),
    ) == [("weaker", "podmonitor evil/m", "kubectl edit -n evil podmonitor m")]
    assert said() == []

"""Rules count the operator's series from where it is installed, and nodes' from where the values
say that exporters run.
"""

import helm

RULES = ("--set=prometheusRule.enabled=true",)


def rendered(namespace, *options):
    text = helm.run(
        "template", "mofa-advisor", str(helm.CHART), f"--namespace={namespace}", f"--kube-version={helm.VERSION}",
        *helm.MONITORED, *RULES, *options,
    )  # fmt: skip
    return text.partition("kind: PrometheusRule")[2].partition("\n---")[0]


def test_the_operator_s_series_are_those_of_its_release():
    rules = rendered("advice")
    assert 'mofa_advisor_build_info{namespace=~"|advice"}' in rules
    assert "mofa-system" not in rules
    assert 'kube_node_spec_unschedulable{namespace=~"|amazon-cloudwatch|' in rules


def test_exporters_run_where_the_values_say():
    rules = rendered("advice", "--set=prometheusRule.exporterNamespaces={obs,dcgm}")
    assert 'kube_node_spec_unschedulable{namespace=~"|obs|dcgm"}' in rules
    assert "amazon-cloudwatch" not in rules
    assert rules.count('namespace=~"|obs|dcgm"') == rendered("advice").count(
        'namespace=~"|amazon-cloudwatch'
    )

"""Device memory of pods, as the DCGM exporter says it, and whose it is."""

from mofa_operator.observe.jobs.pods import Pod, by_pod, device_memory, gang
from mofa_operator.observe.prometheus.client import QueryResult, Sample


def test_a_series_names_the_namespace_of_its_pod_and_no_other():
    kept, renamed = device_memory(
        {"cluster": "east"}, {"ml", "a.b"}, ["gpu-operator"], 180.0
    ).split(" or ")
    assert kept == (
        'max by (namespace, pod) (max_over_time(DCGM_FI_DEV_FB_USED{cluster="east",exported_namespace="",namespace=~"a\\\\.b|ml"}[180s]))'
    )
    assert renamed.startswith("max by (exported_namespace, exported_pod) ")


def test_what_the_scrape_renamed_counts_only_from_the_exporters_own_namespace():
    query = device_memory({"namespace": "kube-system"}, {"ml"}, ["gpu-operator"], 180.0)
    assert 'namespace=~"gpu-operator",exported_namespace=~"ml"' in query
    assert "kube-system" not in query


def test_mebibytes_are_bytes_by_pod_whatever_the_labels_are_called():
    def answer(namespace, pod):
        return QueryResult(samples=(Sample({namespace: "ml", pod: "a-0"}, ((0.0, 1024.0),)),))

    assert by_pod(answer("namespace", "pod")) == {"ml/a-0": 2**30}
    assert by_pod(answer("exported_namespace", "exported_pod")) == {"ml/a-0": 2**30}


def test_a_job_holds_what_the_fullest_of_its_living_pods_holds():
    pods = {
        f"ml/a-{slot}/u{slot}": Pod(
            job_name=("ml", "a"), attempt="0", slot=str(slot), node=f"n{slot}"
        )
        for slot in range(3)
    }
    starts = {"ml/a-0/u0": 700.0, "ml/a-1/u1": 700.0}
    held = {"ml/a-0": 60e9, "ml/a-1": 61e9, "ml/a-2": 79e9}
    assert gang(pods, {}, starts, held).memory_bytes == 61e9, "the third is gone"
    assert gang(pods, {}, starts).memory_bytes is None

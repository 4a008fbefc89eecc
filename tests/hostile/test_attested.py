"""What one tenant publishes, or asks to see, changes nothing that another is told; all through a
real Prometheus.
"""

import asyncio
import time

import pytest

from mofa_model.kinds.kind import ATTEMPTS
from mofa_operator.observe.progress.telemetry import MOST_OWN, JobSeries, TelemetryReader
from mofa_operator.observe.prometheus.client import Prometheus, QueryResult
from mofa_operator.settings import PrometheusSettings

JOB, THEIRS, TORN = ("research", "llama"), ("evil", "mine"), ("research", "torn")


def trainer(namespace, name, tokens):
    whose = f'{{training_namespace="{namespace}",training_job="{name}"}}'
    return (
        f"mofa_train_step{whose} $n\nmofa_train_tokens_per_second{whose} {tokens}\nmofa_train_step_seconds{whose} 2\n"
        f"mofa_train_start_timestamp_seconds{whose} {int(time.time()) - 100}\n"
    )


def pod(namespace, name, uid, node, *, ended=None):
    who = f'namespace="{namespace}",pod="{name}",uid="{uid}"'
    label = (
        'label_jobset_sigs_k8s_io_jobset_name="llama",label_jobset_sigs_k8s_io_restart_attempt="0"'
    )
    text = f'kube_pod_labels{{{who},{label}}} 1\nkube_pod_info{{{who},node="{node}"}} 1\n'
    text += f"kube_pod_container_state_started{{{who}}} {int(time.time()) - 90}\n"
    if ended is not None:
        text += f"kube_pod_container_status_last_terminated_timestamp{{{who}}} {ended}\n"
    return text


def look(site, *jobs, most_series=20_000):
    async def main():
        settings = PrometheusSettings(url=site.prometheus.url, most_series=most_series)
        async with Prometheus(settings) as prometheus:
            return await TelemetryReader(prometheus)(jobs, time.time())

    return asyncio.run(main())


def victim(**more):
    return JobSeries(namespace="research", name="llama", **more)


def test_a_forged_series_changes_nothing_of_the_job_that_it_names(site):
    honest = trainer(*JOB, 1000)
    site.say(victim=honest)
    before = look(site, victim())[JOB]
    assert before.running.tokens_per_second == 1000
    site.say(
        victim=honest,
        evil=trainer(*JOB, 9e6) + 'mofa_train_tokens_per_second{namespace="research"} 9e6\n',
    )
    after = look(site, victim())[JOB]
    assert after.running.tokens_per_second == 1000
    assert after.running.step == pytest.approx(time.time() * 10, abs=100)
    assert after.series_since == pytest.approx(before.series_since, abs=10)


def as_research(text, **more):
    """The same series, as a target writes them whose labels are honoured."""
    told = "".join(
        f',{name}="{value}"' for name, value in {"namespace": "research", **more}.items()
    )
    return text.replace("} ", f"{told}}} ")


def test_a_target_whose_labels_are_honoured_speaks_for_its_own_namespace_alone(site):
    """Without the join on `up` the largest value won: OBSERVED 9,000,000."""
    site.say(victim=trainer(*JOB, 1000), honoured=as_research(trainer(*JOB, 9e6)))
    said = {labels["namespace"]: value for labels, value in site.prometheus.ask('mofa_train_tokens_per_second{training_job="llama",job=~"evil.*"}')}  # fmt: skip
    assert "research" in said, "Prometheus has it as the victim's"
    assert look(site, victim())[JOB].running.tokens_per_second == 1000


def test_a_target_that_takes_another_address_too_is_not_scraped_there(site):
    forged = as_research(trainer(*JOB, 9e6), job="research-trainer", instance="10.0.0.1:9")
    site.say(victim=trainer(*JOB, 1000), honoured=forged)
    assert look(site, victim())[JOB].running.tokens_per_second == 1000
    silent = as_research(trainer("research", "silent", 9e6), instance="10.0.0.1:9")
    site.say(victim=trainer(*JOB, 1000), honoured=silent)
    told = look(site, JobSeries(namespace="research", name="silent"))[("research", "silent")]
    assert told.running is None
    assert "no target that Prometheus scrapes in this namespace" in told.refused


def test_two_targets_that_disagree_contest_a_job_and_nothing_is_said_of_it(site):
    """Whoever forges `up` as well is a second source: neither is believed, and the job says what to
    look for.
    """
    torn = JobSeries(namespace="research", name="torn")
    forged = as_research(trainer(*TORN, 9e6), job="research-2", instance="10.0.0.1:9")
    forged += 'up{namespace="research",job="research-2",instance="10.0.0.1:9"} 1\n'
    site.say(victim=trainer(*TORN, 1000), honoured=forged)
    told = look(site, torn)[TORN]
    assert told.running is None
    assert told.refused == "contested: two targets say different speeds of this job; look for honorLabels among what is scraped"  # fmt: skip
    steps = forged.replace("$n", "9$n").replace(" 9000000.0", " 1000")
    site.say(victim=trainer(*TORN, 1000), honoured=steps)
    assert "different steps" in look(site, torn)[TORN].refused
    site.say(victim=trainer(*TORN, 1000), honoured=forged.replace(" 9000000.0", " 1000"))
    assert "different speeds" in look(site, torn)[TORN].refused, "nor by what it said before"
    same = forged.replace('"torn"', '"ranks"').replace(" 9000000.0", " 1100")
    site.say(victim=trainer("research", "ranks", 1000), honoured=same)
    told = look(site, JobSeries(namespace="research", name="ranks"))["research", "ranks"]
    assert (told.refused, told.running.tokens_per_second) == ("", 1100), "ranks say the same"


def test_what_a_target_said_that_is_gone_moves_nothing(site):
    """The mean of ten minutes is of targets that still speak."""
    gone = ("research", "left")
    forged = as_research(trainer(*gone, 9e6), job="research-2", instance="10.0.0.1:9")
    forged += 'up{namespace="research",job="research-2",instance="10.0.0.1:9"} 1\n'
    site.say(victim=trainer(*gone, 1000), honoured=forged)
    site.say(victim=trainer(*gone, 1000))
    found = look(site, JobSeries(namespace="research", name="left"))[gone]
    assert (found.refused, found.running.tokens_per_second) == ("", 1000)


def test_a_job_that_publishes_nothing_cannot_be_made_to_run_by_another(site):
    site.say(evil=trainer("research", "silent", 9e6))
    assert look(site, JobSeries(namespace="research", name="silent")) == {}


def test_own_matchers_show_nobody_elses_series(site):
    site.say(
        victim="megatron_training_tokens_per_sec 777\n", evil="megatron_training_tokens_per_sec 1\n"
    )
    spy = JobSeries(
        namespace="evil", name="mine", preset="megatron", matchers={"job": "research-trainer"}
    )
    own = JobSeries(
        namespace="evil", name="mine", preset="megatron", matchers={"job": "evil-trainer"}
    )
    assert THEIRS not in look(site, spy)
    assert look(site, own)[THEIRS].running.tokens_per_second == 1


def test_a_matcher_that_names_another_namespace_is_refused_by_name(site):
    site.say(victim=trainer(*JOB, 1000), evil=trainer(*THEIRS, 5))
    found = look(
        site, JobSeries(namespace="evil", name="mine", matchers={"namespace": "research"}), victim()
    )
    assert "spec.throughput.matchers.namespace: 'research'" in found[THEIRS].refused
    assert found[JOB].running.tokens_per_second == 1000
    own = look(site, JobSeries(namespace="evil", name="mine", matchers={"namespace": "evil"}))
    assert own[THEIRS].running.tokens_per_second == 5


def test_a_bad_matcher_fails_its_own_job_alone(site):
    site.say(victim=trainer(*JOB, 1000), evil=trainer(*THEIRS, 5))
    bad = JobSeries(namespace="evil", name="bad", matchers={"app.kubernetes.io/name": "trainer"})
    found = look(site, bad, victim(), JobSeries(namespace="evil", name="mine"))
    assert "'app.kubernetes.io/name'" in found["evil", "bad"].refused
    assert found[JOB].running.tokens_per_second == 1000
    assert found[THEIRS].running.tokens_per_second == 5, "nor does it fail its neighbours"


def test_a_flood_of_series_blinds_its_own_namespace_alone(site):
    flood = "".join(trainer("evil", f"flood-{n}", 1) for n in range(60))
    pods = "".join(pod("evil", f"p-{n}", f"e-{n}", "x") for n in range(60))
    site.say(
        victim=trainer(*JOB, 1000),
        evil=flood,
        state=pod("research", "llama-0", "u1", "node-1") + pods,
    )
    found = look(site, JobSeries(namespace="evil", name="mine"), victim(), most_series=50)
    assert "series" in found[THEIRS].refused
    assert found[JOB].running.tokens_per_second == 1000
    assert found[JOB].gang.nodes == {"node-1"}


def test_a_pod_with_the_uid_of_another_is_not_that_pod(site):
    own = pod("research", "llama-0", "u1", "node-1")
    site.say(victim=trainer(*JOB, 1000), state=own)
    before = look(site, victim())[JOB].gang
    assert before.nodes == {"node-1"}
    forged = pod("evil", "llama-0", "u1", "elsewhere", ended=int(time.time()))
    site.say(victim=trainer(*JOB, 1000), state=own, evil=forged)
    assert look(site, victim())[JOB].gang == before


def test_a_job_that_was_deleted_and_made_again_under_its_name_has_no_restarts_of_the_one_before(
    site,
):
    """A JobSet that had restarted five times was deleted and applied again; the new one was told of
    five interruptions.
    """
    now = int(time.time())
    earlier = pod("research", "llama-a", "u8", "node-8").replace('attempt="0"', 'attempt="5"')
    earlier += f'kube_pod_created{{namespace="research",pod="llama-a",uid="u8"}} {now - 600}\n'
    later = pod("research", "llama-b", "u9", "node-9")
    later += f'kube_pod_created{{namespace="research",pod="llama-b",uid="u9"}} {now - 60}\n'
    site.say(victim=trainer(*JOB, 1000), state=earlier + later)
    assert look(site, victim())[JOB].gang.observation.counters[ATTEMPTS].value == 5
    found = look(site, victim(born=now - 90.0))[JOB].gang
    assert found.observation.counters[ATTEMPTS].value == 0
    assert not found.observation.signs
    assert "node-8" not in found.nodes
    assert "node-9" in found.nodes


def test_device_memory_counts_from_its_own_namespace_or_from_exporters_that_the_profile_names(site):
    def held(names, gib):
        return f'DCGM_FI_DEV_FB_USED{{{names[0]}="research",{names[1]}="llama-0",gpu="0"}} {1024 * gib}\n'

    own, renamed = ("namespace", "pod"), ("exported_namespace", "exported_pod")
    there = pod("research", "llama-0", "u1", "node-1")
    forged = held(own, 79) + held(renamed, 78)
    site.say(victim=trainer(*JOB, 1000), state=there, evil=forged)
    assert look(site, victim())[JOB].gang.memory_bytes is None, (
        "what a tenant says of another is not heard"
    )
    assert look(site, victim(exporters=("gpu-operator",)))[JOB].gang.memory_bytes is None
    trusted = look(site, victim(exporters=("evil",)))[JOB].gang.memory_bytes
    assert trusted in (78 * 2**30, 79 * 2**30), "whom the administrator names is believed"
    site.say(victim=trainer(*JOB, 1000), state=there + held(own, 60), evil=forged)
    assert look(site, victim())[JOB].gang.memory_bytes == 60 * 2**30


def test_many_matchers_cost_a_bounded_number_of_queries_and_the_others_are_told():
    class Server:
        asked = 0

        async def query(self, promql, at=None):
            Server.asked += 1
            return QueryResult(samples=())

    jobs = [
        JobSeries(namespace="evil", name=f"j-{n:04}", matchers={"run": str(n)}) for n in range(1000)
    ]
    found = asyncio.run(TelemetryReader(Server())([*jobs, victim()], time.time()))
    of_all = 2  # which namespaces are scraped, and where pods are told of
    assert Server.asked <= 15 * (MOST_OWN + 1) + of_all
    assert sum("the first 32 jobs" in one.refused for one in found.values()) == 1000 - MOST_OWN
    assert JOB not in found

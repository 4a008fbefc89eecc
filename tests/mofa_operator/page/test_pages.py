"""The operator's page: what it says of jobs and profiles, and that it shows nothing it was
not given.
"""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

aiohttp = pytest.importorskip("aiohttp", reason="the page needs the extra `operator`")

from aiohttp import web  # noqa: E402
from operator_objects import shown  # noqa: E402

from mofa_operator.keys import CLUSTER_PROFILE  # noqa: E402
from mofa_operator.objects import live  # noqa: E402
from mofa_operator.page.job import job_page  # noqa: E402
from mofa_operator.page.jobs import MOST, jobs_page  # noqa: E402
from mofa_operator.page.profiles import profile_page, profiles_page  # noqa: E402
from mofa_operator.page.server import routes  # noqa: E402
from mofa_operator.snapshot import Curves, Refusal  # noqa: E402

BAND = {"lower": "0.9", "target": "0.95", "upper": "0.97"}
JOB = {
    "apiVersion": "mofa.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {
        "namespace": "ml",
        "name": "llama",
        "annotations": {
            "advisor.mofa.dev/explanation": "tp=8 it is",
            "advisor.mofa.dev/inputs-hash": "abc",
            "other/key": "secret",
        },
    },
    "status": {
        "inputs": {"nodes": 16},
        "recommendation": {
            "summary": "tp8 dp16",
            "checkpointIntervalSeconds": 1260,
            "predicted": {
                "tokensPerSecond": {"lower": 380000, "target": 412000, "upper": 450000},
                "ettr": BAND,
            },
        },
        "observed": {
            "tokensPerSecond": 350000,
            "interruptions": 2,
            "since": "2026-11-01T00:00:00Z",
        },
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Recommended", "message": "fine"}
        ],
    },
}
PROFILE = {
    "metadata": {"name": "h100-east"},
    "status": {
        "nodes": {"total": 256, "ready": 254},
        "total": {"assumed": "5.0", "observed": "20.1"},
        "conditions": [
            {"type": "AssumptionsHold", "status": "False", "reason": "HigherThanAssumed"}
        ],
        "failures": [
            {
                "name": "pod",
                "failures": 20,
                "exposureNodeDays": "1000",
                "assumed": "5.0",
                "rate": {"lower": "13", "mean": "20", "upper": "29"},
                "recoverySeconds": 280,
                "verdict": "HigherThanAssumed",
            }
        ],
        "calibration": {"stepTimeRatio": "1.18", "jobs": 3},
    },
}
EAST = live(CLUSTER_PROFILE, PROFILE)


def test_the_list_shows_what_columns_show_and_what_needs_attention_first():
    poor = {"kind": "JobSet", "metadata": {"namespace": "ml", "name": "zeta"}}
    html = jobs_page([shown(JOB), shown(poor)])
    assert html.index("ml/zeta") < html.index("ml/llama")
    assert "412k" in html
    assert "Pending" in html
    assert 'href="/jobs/trainingjobs.mofa.dev/ml/llama"' in html


def test_a_job_that_hangs_is_first_and_is_never_just_recommended():
    def job(name, health="", reason="Recommended"):
        return JOB | {
            "metadata": {"namespace": "ml", "name": name},
            "status": {"conditions": [{"type": "Ready", "reason": reason}], "health": health},
        }

    jobs = [
        job("a", "Healthy"),
        job("b"),
        job("c", "Drifting"),
        job("d", "NotSeen"),
        job("e", reason="LowConfidence"),
        job("f", "Stuck"),
    ]
    html = jobs_page(map(shown, jobs))
    order = [html.index(f">ml/{name}<") for name in "fcdeab"]
    assert order == sorted(order), "stuck; what else needs attention; the others"
    for word, look in (
        ("Healthy", "good"),
        ("Drifting", "warn"),
        ("NotSeen", "warn"),
        ("Stuck", "bad"),
    ):
        assert f'<span class="{look}">{word}</span>' in html
    assert '<span class="bad">Stuck</span>' in job_page(shown(job("f", "Stuck")), None)


def test_a_job_of_another_kind_does_as_the_operator_says_and_not_as_its_status_does():
    foreign = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"namespace": "ml", "name": "js"},
    }
    assert "Healthy" not in jobs_page([shown(foreign | {"status": {"health": "Healthy"}})])
    assert "Stuck" in jobs_page([shown(foreign, "Stuck")])


def test_one_job_shows_the_band_with_what_was_seen_and_only_our_annotations():
    html = job_page(shown(JOB), None)
    assert "predicted 412,000, between 380,000 and 450,000; seen 350,000" in html
    assert "Interruptions since 2026-11-01T00:00:00Z: 2" in html
    assert "tp=8 it is." in html
    assert "secret" not in html


def test_a_job_that_runs_another_layout_is_shown_against_what_is_predicted_of_that():
    tokens = {"lower": 320000, "target": 362000, "upper": 411000}
    today = {"strategy": "tp=8,pp=16", "predicted": {"tokensPerSecond": tokens}}
    html = job_page(shown(JOB | {"status": JOB["status"] | {"current": today}}), None)
    assert "predicted 362,000, between 320,000 and 411,000; seen 350,000" in html
    assert "said to run: tp8 pp16" in html


def test_where_the_advice_cannot_be_shown_in_full_the_page_says_why():
    assert "<p>Later.</p>" in job_page(shown(JOB), "Later.")


def test_a_long_list_shows_first_what_needs_attention_and_leads_to_the_others():
    poor = {"kind": "JobSet", "metadata": {"namespace": "ml", "name": "zeta"}}
    jobs = [shown(JOB)] * MOST + [shown(poor)]
    html = jobs_page(jobs, "ml", "l", 0)
    assert "ml/zeta" in html
    assert html.count("<tr") == 1 + MOST
    assert "1 to 25 of 26 jobs" in html
    assert 'href="/?search=l&amp;namespace=ml&amp;page=2" rel="next"' in html
    rest = jobs_page(jobs, None, "", 99)
    assert "26 to 26 of 26 jobs" in rest
    assert "ml/zeta" not in rest
    assert 'href="/?page=1" rel="prev"' in rest
    assert "Pages" not in jobs_page([shown(JOB)])


def test_words_find_jobs_by_what_the_list_says_of_them():
    poor = {"kind": "JobSet", "metadata": {"namespace": "ml", "name": "zeta"}}
    jobs = [shown(JOB), shown(poor)]
    for words, there in (
        ("llama", "llama"),
        ("JOBSET", "zeta"),
        ("tp8 recommended", "llama"),
        ("pending ml", "zeta"),
    ):
        html = jobs_page(jobs, None, words)
        assert [name for name in ("llama", "zeta") if f">ml/{name}<" in html] == [there], words
    assert "None of 2 jobs has all of these words" in jobs_page(jobs, None, "tp8 zeta")
    assert 'value="&quot;b"' in jobs_page(jobs, None, '"b')


def test_of_two_that_drift_the_one_that_falls_behind_more_is_first():
    def job(name, seen):
        observed = JOB["status"]["observed"] | {"tokensPerSecond": seen}
        status = JOB["status"] | {"observed": observed, "health": "Drifting"}
        return shown(JOB | {"metadata": {"namespace": "ml", "name": name}, "status": status})

    html = jobs_page([job("a", 300000), job("b", 200000)])
    assert html.index(">ml/b<") < html.index(">ml/a<")


def test_the_last_day_is_drawn_and_told_in_numbers():
    found = Curves(
        predicted=((0.0, 400.0), (3600.0, 400.0)), observed=((0.0, 390.0), (3600.0, 350.0))
    )
    html = job_page(shown(JOB), None, found)
    assert "hours from now -1, observed: 390" in html
    assert "<polyline" in html
    assert ">350<" in html
    assert "holds nothing of this job yet" in job_page(shown(JOB), None, Curves())
    assert "<p>Why not.</p>" in job_page(shown(JOB), None, "Why not.")


def test_what_cannot_be_right_stands_at_its_field_and_what_was_written_stays():
    html = job_page(shown(JOB), Refusal({"nodes": "'x' cannot be right"}), None, {"nodes": "x"})
    assert 'id="nodes-error"' in html
    assert 'aria-describedby="nodes-hint nodes-error"' in html
    assert 'value="x"' in html
    assert 'role="alert"' in html


def test_a_kind_that_two_groups_have_leads_to_the_right_one():
    both = [
        {"apiVersion": version, "kind": "Job", "metadata": {"namespace": "ml", "name": "a"}}
        for version in ("batch/v1", "batch.volcano.sh/v1alpha1")
    ]
    html = jobs_page(map(shown, both))
    assert 'href="/jobs/jobs.batch/ml/a"' in html
    assert 'href="/jobs/jobs.batch.volcano.sh/ml/a"' in html


def test_the_status_of_a_foreign_kind_is_not_taken_for_ours():
    foreign = {"kind": "JobSet", "metadata": JOB["metadata"], "status": JOB["status"]}
    assert "Conditions" in job_page(shown(JOB), None)
    assert "Conditions" not in job_page(shown(foreign), None)


def test_a_profile_shows_assumption_and_posterior():
    assert "HigherThanAssumed" in profiles_page([EAST])
    html = profile_page(EAST)
    assert "pod: posterior 20, between 13 and 29; assumed 5" in html
    assert "3 jobs ran 1.18 times as long a step" in html


def test_empty_lists_say_what_to_do():
    assert "kubectl apply" in jobs_page([])
    assert "mofa profile --from-cluster" in profiles_page([])


def json_values(depth=3):
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
        ),
        max_leaves=8,
    )


@given(st.dictionaries(st.sampled_from(["kind", "metadata", "status"]), json_values()))
def test_any_object_can_be_listed(body):
    assert jobs_page([shown(body)]).startswith("<!doctype html>")


def test_the_routes_answer_and_forbid_scripts():
    async def jobs(namespace):
        return [shown(JOB)] if namespace in {None, "ml"} else []

    asked = []

    async def view(*words):
        asked.append(words[-1])
        return "Later."

    async def curves(*_):
        return "No Prometheus is configured."

    async def profiles():
        return [EAST]

    async def visit():
        source = SimpleNamespace(
            jobs=jobs,
            job=lambda resource, namespace, name: shown(JOB) if name == "llama" else None,
            view=view,
            curves=curves,
            profiles=profiles,
            profile={"h100-east": EAST}.get,
        )
        app = web.Application()
        app.add_routes(routes(source))
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        found = {}
        try:
            async with aiohttp.ClientSession() as session:
                for path in (
                    "/",
                    "/jobs/trainingjobs.mofa.dev/ml/llama",
                    "/jobs/trainingjobs.mofa.dev/ml/llama?nodes=4&tokens=&secret=1",
                    "/profiles",
                    "/profiles/h100-east",
                    "/profiles/no",
                ):
                    async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                        found[path] = (answer.status, answer.headers["Content-Security-Policy"])
                async with session.post(f"http://127.0.0.1:{port}/") as answer:
                    found["post"] = (answer.status, "")
        finally:
            await runner.cleanup()
        return found

    found = asyncio.run(visit())
    assert [
        found[path][0]
        for path in (
            "/",
            "/jobs/trainingjobs.mofa.dev/ml/llama",
            "/profiles",
            "/profiles/h100-east",
        )
    ] == [200] * 4
    assert found["/profiles/no"][0] == 404
    assert found["post"][0] == 405
    assert "default-src 'none'" in found["/"][1]
    assert "form-action 'self'" in found["/"][1]
    assert asked == [{}, {"nodes": "4"}]


def test_memory_and_odds_stand_on_the_page_of_a_job_and_what_was_taught_on_that_of_its_profile():
    gib = 2**30
    advice = JOB["status"]["recommendation"]
    predicted = advice["predicted"] | {
        "memoryBytes": {"lower": 50 * gib, "target": 60 * gib, "upper": 70 * gib}
    }
    advice = advice | {"predicted": predicted, "odds": {"fits": "0.941", "beats": "0.620"}}
    seen = JOB["status"]["observed"] | {"memoryBytes": 63 * gib}
    page = job_page(
        shown(JOB | {"status": JOB["status"] | {"recommendation": advice, "observed": seen}}), None
    )
    assert "Device memory, GiB" in page
    assert ">60.0<" in page
    assert ">63.0<" in page
    assert "fits with a probability of 94%, and beats today's layout with 62%" in page
    taught = {"stepTimeRatio": "1.00", "memoryRatio": "1.06", "memorySpread": "0.10", "jobs": 3}
    body = PROFILE | {"status": PROFILE["status"] | {"calibration": taught}}
    assert "Their devices held 1.06 times what it says" in profile_page(live(CLUSTER_PROFILE, body))

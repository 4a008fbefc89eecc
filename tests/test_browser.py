"""A real browser walks the what-if page and the operator's page, on a desk and on a phone, light and dark."""

import asyncio
import os
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytest.importorskip(
    "aiohttp", reason="the operator's page and the browser's protocol need the extra `operator`"
)

import browser
from aiohttp import web
from operator_objects import profile, shown, training_job

from mofa_model.answers.what_if import FIRST
from mofa_operator.decide.view import view
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.observe.curves import Curves
from mofa_operator.observe.store import Store
from mofa_operator.page.server import Source, routes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "there is a browser"),
]

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
PATIENCE = 1.5
"""Within which a form is answered. [s]"""
ASKED = {**FIRST, "vary": "tp=1,2,4", "current": "tp=4,pp=2,sp=true"}
WRONG = {**FIRST, "gpus": "63"}
BAND = {"lower": 380000, "target": 412000, "upper": 450000}
SHOWN = {1280: ("what-if", "jobs", "job", "profile"), 390: ("what-if", "jobs")}
"""Pages whose pictures the documents show, by width."""
TALLEST = {1280: 2600, 390: 1700}
"""Heights of their pictures. [px]"""
MARKUP = "<script>document.title='run'</script><h1 onclick=x>& \"quoted\"</h1>"
LARGEST = 150_000
"""Bytes of a picture. [B]"""
WORSE = "data:text/html,<title>x</title><img src=x><input><p style='width:3000px;color:%23eee'>wide</p>"
SHARE = {"lower": "0.95", "target": "0.97", "upper": "0.98"}


def source():
    """The operator's page on jobs of every mood, with a real answer in full."""
    store = Store()
    store.put(CLUSTER_PROFILE, profile())
    store.put(TRAINING_JOB, training_job(current={"strategy": "tp=8"}))
    body = store.body(Key(TRAINING_JOB, "ns", "a"))
    question = store.snapshot(Key(TRAINING_JOB, "ns", "a"), 0.0).question
    status = {
        "inputs": {"nodes": 16},
        "recommendation": {
            "summary": "tp8 pp32 cp2 dp4 vpp4",
            "checkpointIntervalSeconds": 1260,
            "predicted": {"tokensPerSecond": BAND, "ettr": SHARE},
            "odds": {"fits": "0.94", "beats": "0.62"},
        },
        "observed": {"tokensPerSecond": 350000, "ettr": "0.96", "interruptions": 2},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Recommended", "message": "fine"}],
    }
    moods = ("Stuck", "Drifting", "Healthy", "NotSeen", "Healthy")
    marked = {"metadata": body["metadata"] | {"name": MARKUP}, "status": status}
    jobs = [
        shown(body | {"metadata": body["metadata"] | {"name": f"pretrain-llama3-405b-run-{n}"}, "status": status | {"health": mood}})
        for n, mood in enumerate(moods)
    ]  # fmt: skip
    pool = profile()
    pool["status"] = {
        "failures": [{"name": "pod", "failures": 2, "exposureNodeDays": "1000", "assumed": "3", "verdict": "Consistent", "rate": {"lower": "1", "mean": "2", "upper": "3"}}],
        "conditions": status["conditions"],
    }  # fmt: skip
    day = [(900.0 * n, 412000.0 if n < 48 else 362000.0) for n in range(96)]
    lately = Curves(predicted=tuple(day), observed=tuple((t, 0.93 * v) for t, v in day))

    async def every(namespace):
        return [shown(body | marked)] if namespace == "marked" else jobs

    async def full(*where):
        from dataclasses import replace

        return await asyncio.to_thread(view, replace(question, changes=dict(where[-1])))

    async def curves(*_):
        return lately

    async def pools():
        return [live(CLUSTER_PROFILE, pool)]

    return Source(
        jobs=every,
        job=lambda *_: jobs[1],
        view=full,
        curves=curves,
        profiles=pools,
        profile=lambda _: live(CLUSTER_PROFILE, pool),
    )


async def served():
    """The operator's page, and its address."""
    app = web.Application()
    app.add_routes(routes(source()))
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"


async def walk(desk):
    """Every page at every width in both schemes: what is too wide, what axe finds, what the page complains of, pictures."""
    runner, site = await served()
    job = f"{site}/jobs/trainingjobs.mofa.dev/ns/a"
    pages = {
        "what-if-empty": f"{desk}/",
        "what-if": f"{desk}/?{urlencode(ASKED)}",
        "what-if-wrong": f"{desk}/?{urlencode(WRONG)}",
        "jobs": f"{site}/?search=llama3",
        "job": f"{job}?nodes=1",
        "job-wrong": f"{job}?nodes=x",
        "profiles": f"{site}/profiles",
        "profile": f"{site}/profiles/h100-east",
    }
    found = {}
    try:
        async with browser.browser() as page:
            for name, url in pages.items():
                await page.look(WIDTHS[0], SCHEMES[0])
                await page.open(url)
                for width in WIDTHS:
                    for scheme in SCHEMES:
                        await page.look(width, scheme)
                        found[name, width, scheme] = {
                            "overflow": await page.js(browser.OVERFLOW),
                            "axe": await page.findings(),
                            "picture": await page.picture(width, TALLEST[width])
                            if name in SHOWN[width]
                            else b"",
                        }
            found["said"] = list(page.said)
            found["forms"] = {
                "what if": await best(page, f"{desk}/", "gpus", "128", "256", "512"),
                "what if, wrong": await best(page, f"{desk}/", "gpus", "many", "some", "all"),
                "beside a job": await best(page, job, "global_batch_size", "128", "256", "512"),
                "search": await best(page, f"{site}/", "search", "drifting", "stuck", "healthy"),
            }
            await page.open(f"{site}/?namespace=marked")
            found["marked"] = await page.js(
                "[document.title, document.querySelector('tbody th').textContent, document.querySelectorAll('h1, script').length]"
            )
            await page.open(WORSE)
            found["worse"] = (await page.js(browser.OVERFLOW), await page.findings())
            found["keyboard"] = await keyboard(page, f"{desk}/")
    finally:
        await runner.cleanup()
    return found


async def best(page, url, field, *values):
    """The first answer that is there in time, else the last: a machine may be busy once, and no value is asked twice."""
    for value in values:
        told = await sent(page, url, field, value)
        if 0 < told[0] < PATIENCE:
            break
    return (*told, value)


async def sent(page, url, field, value):
    """Fill a field, press the button; seconds until the answer is there, and what its first heading and the field say."""
    await page.open(url)
    await page.js(f"document.getElementById('{field}').value = '{value}'; 0")
    await page.js("""new Promise(done => { sessionStorage.began = performance.timeOrigin + performance.now();
        document.querySelector('form button').click(); done(0) })""")
    for _ in range(600):
        await asyncio.sleep(0.02)
        if await page.js("document.readyState === 'complete' && location.search.length > 1"):
            break
    seconds = await page.js(
        "(performance.timeOrigin + performance.timing.loadEventEnd - performance.timing.navigationStart - sessionStorage.began) / 1000"
    )
    return (
        seconds,
        await page.js("document.querySelector('h1').textContent"),
        await page.js(f"document.getElementById('{field}').value"),
    )


async def keyboard(page, url):
    """What Tab reaches, in its order."""
    await page.look(WIDTHS[0], "light")
    await page.open(url)
    names = []
    for _ in range(12):
        for kind in ("keyDown", "keyUp"):
            await page.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        names.append(
            await page.js("document.activeElement.id || document.activeElement.textContent.slice(0, 30)")
        )
    return names


@pytest.fixture(scope="module")
def desk():
    """A real `mofa ui`."""
    command = [sys.executable, "-m", "mofa_model", "ui", "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield re.match(r"http://127\.0\.0\.1:\d+", running.stdout.readline())[0]
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


@pytest.fixture(scope="module")
def walked(desk):
    return asyncio.run(walk(desk))


def seen(walked):
    return {key: value for key, value in walked.items() if isinstance(key, tuple)}


def test_no_page_is_wider_than_its_window(walked):
    assert len(seen(walked)) == 8 * len(WIDTHS) * len(SCHEMES)
    assert {key: one["overflow"] for key, one in seen(walked).items() if one["overflow"] > 0} == {}


def test_axe_finds_nothing_serious(walked):
    assert {key: one["axe"] for key, one in seen(walked).items() if one["axe"]} == {}


def test_what_is_wrong_would_be_found(walked):
    wide, found = walked["worse"]
    assert wide > 1000
    assert {line.partition(":")[0] for line in found} >= {"image-alt", "label", "color-contrast"}


def test_markup_in_names_is_text(walked):
    assert walked["marked"] == ["Jobs in marked · MoFa Advisor", f"ns/{MARKUP}", 1]


def test_no_page_breaks_its_own_policy(walked):
    assert [line for line in walked["said"] if "favicon" not in line and "404" not in line] == []


def test_every_form_is_answered_in_time_and_keeps_what_was_written(walked):
    forms = walked["forms"]
    assert {name: seconds for name, (seconds, *_) in forms.items() if not 0 < seconds < PATIENCE} == {}
    assert [name for name, (_, _, kept, asked) in forms.items() if kept != asked] == []
    asked = forms["what if"][-1]
    assert {name: heading for name, (_, heading, *_) in forms.items()} == {
        "what if": f"llama3-8b on {asked} h100-80gb-sxm: what if",
        "what if, wrong": "What if",
        "beside a job": "ns/pretrain-llama3-405b-run-1",
        "search": "Jobs",
    }


def test_the_keyboard_reaches_the_fields_in_their_order(walked):
    assert walked["keyboard"][0] == "Skip to the content"
    assert [name for name in walked["keyboard"] if name in FIRST] == list(FIRST)


def test_the_documents_show_what_the_browser_saw(walked):
    """`MOFA_PICTURES=1` writes them."""
    from PIL import Image

    for (name, width, scheme), one in seen(walked).items():
        if not one["picture"]:
            continue
        path = PICTURES / f"{name}-{'phone-' if width < 600 else ''}{scheme}.png"
        shot = Image.open(BytesIO(one["picture"])).convert("RGB")
        assert len(shot.getcolors(1 << 20)) > 10
        if os.environ.get("MOFA_PICTURES"):
            shot.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
        assert path.stat().st_size <= LARGEST
        kept = Image.open(path).convert("RGB")
        assert kept.width == shot.width == width
        assert abs(sum(kept.getpixel((0, 0))) - sum(shot.getpixel((0, 0)))) < 60, (
            "light is light, dark is dark"
        )

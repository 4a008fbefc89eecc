"""A real browser walks the what-if page and the operator's page, on a desk and on a phone, light
and dark.
"""

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

pytest.importorskip(
    "aiohttp", reason="the operator's page and the browser's protocol need the extra `operator`"
)

import browser
from aiohttp import web
from operator_objects import World, meta, node, profile_with, shown
from ruamel.yaml import YAML

from mofa_model.answers.what_if import FIRST
from mofa_model.answers.which_form import FIRST as WHICH
from mofa_model.spec.recovery_classes import RecoveryClass
from mofa_model.strategy import parse_strategy
from mofa_model.units import DAY, HOUR
from mofa_operator.decide.answer import view
from mofa_operator.keys import CLUSTER_PROFILE, NODE, TRAINING_JOB, Key
from mofa_operator.objects import live
from mofa_operator.page.server import routes
from mofa_operator.settings import LoopSettings
from mofa_operator.snapshot import Alive, Curves, Running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "there is a browser"),
]

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
PATIENCE = 4.0
"""Within which a form is answered, beside other tests: alone it takes a third of a second. [s]"""
ASKED = {**FIRST, "vary": "tp=1,2,4", "current": "tp=4,pp=2,sp=true"}
WRONG = {**FIRST, "gpus": "63"}
WORDS = "llama3 8b on 16 h100, seq 8k, batch 128"
SHOWN = {1280: ("what-if", "jobs", "job", "profile"), 390: ("what-if", "jobs", "job")}
"""Pages whose pictures the documents show, by width."""
TALLEST = {1280: 2600, 390: 1700}
"""Heights of their pictures. [px]"""
MARKUP = "<script>document.title='run'</script><h1 onclick=x>& \"quoted\"</h1>"
LARGEST = 150_000
"""Bytes of a picture. [B]"""
WORSE = (
    "data:text/html,<title>x</title><img src=x><input><p style='width:3000px;color:%23eee'>wide</p>"
)
QUICKER = {
    "tp": {"values": [8]}, "cp": {"values": [1, 2]}, "mbs": {"values": [1]}, "recompute": ["none"], "offload": ["none"],
    "sharding": ["distributed"],
}  # fmt: skip
"""Constraints that leave the same best layout, and a third of the search: a form is answered in
time on a busy machine.
"""
LONG = {1280: 4500, 390: 8000}
"""Heights that no page exceeds, by width. [px]"""
TALL = {1280: 130, 390: 440}
"""Heights that no row of a table exceeds, by width. [px]"""


def fleet():
    """The operator's own answers on a pool that has room for what runs: the documents' job five
    times, each in another mood.
    """
    yaml = YAML(typ="safe")
    pool, asked = (
        yaml.load(ROOT / "examples" / name) for name in ("h100-east.yaml", "llama3-405b.yaml")
    )
    pool["metadata"] = meta("h100-east")
    world = World()
    for number in range(5 * 256):
        world.put(NODE, node(f"gpu-{number}"))
    world.put(CLUSTER_PROFILE, pool)
    world.rest()
    keys = [Key(TRAINING_JOB, "research", f"pretrain-llama3-405b-run-{n}") for n in range(5)]
    for key in keys:
        body = asked | {"metadata": meta(key.name, namespace=key.namespace)}
        world.put(TRAINING_JOB, body | {"spec": body["spec"] | {"constraints": QUICKER}})
    world.rest()
    began, due = world.now, LoopSettings().stuck_least
    world.now += DAY
    for key, pace, late in zip(
        keys, (0.96, 0.8, 0.97, None, 0.95), (3 * due, 0, 0, 0, 0), strict=True
    ):
        today = live(TRAINING_JOB, world.bodies[key]).status.current.predicted
        seen = None if pace is None else Running(
            source="mofa", tokens_per_second=pace * today["tokens_per_second"].target, ettr=0.968, since=began,
            memory_bytes=1.02 * today["memory_bytes"].target, whole_device=True,
            interruptions={(RecoveryClass.POD, "failure"): 2},
        )  # fmt: skip
        stepped = None if pace is None else world.now - late
        there = Alive(
            at=world.now, since=began, watched=pace is not None, step_at=stepped, step_seconds=45.0
        )
        world.due |= world.store.set_running(key, seen, there)
    world.rest()
    return world, keys


def source():
    """The operator's page on these jobs."""
    world, keys = fleet()
    jobs = [shown(world.bodies[key]) for key in keys]
    question = world.store.snapshot(keys[1], world.now).question
    pool = profile_with(world.bodies[Key(CLUSTER_PROFILE, "", "h100-east")])
    today, advised = jobs[1].status.current.predicted, jobs[1].predicted
    day = [(900.0 * n, advised["tokens_per_second"].target) for n in range(96)]
    seen = [
        (t, (0.97 if t < 12 * HOUR else 0.8) * today["tokens_per_second"].target) for t, _ in day
    ]
    lately = Curves(predicted=tuple(day), observed=tuple(seen))
    marked = world.bodies[keys[2]]
    marked = marked | {"metadata": marked["metadata"] | {"namespace": "ns", "name": MARKUP}}

    async def every(namespace):
        return (
            [shown(marked)] if namespace == "marked" else jobs * 20 if namespace == "many" else jobs
        )

    async def full(*where):
        return await asyncio.to_thread(view, replace(question, changes=dict(where[-1])))

    async def curves(*_):
        return lately

    async def pools():
        return [pool]

    return SimpleNamespace(
        jobs=every,
        job=lambda *_: jobs[1],
        view=full,
        curves=curves,
        profiles=pools,
        profile=lambda _: pool,
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
    """Every page at every width in both schemes: what is too wide, what axe finds, what the page
    complains of, pictures.
    """
    runner, site = await served()
    job = f"{site}/jobs/trainingjobs.mofa.dev/research/pretrain-llama3-405b-run-1"
    pages = {
        "what-if": f"{desk}/?{urlencode(ASKED)}",
        "what-if-wrong": f"{desk}/?{urlencode(WRONG)}",
        "paste": f"{desk}/paste",
        "pasted": f"{desk}/paste",
        "which": f"{desk}/which?{urlencode({**WHICH, 'gpu': 'l4,a10g'})}",
        "which-wrong": f"{desk}/which?{urlencode({**WHICH, 'gpu': 'h1oo'})}",
        "jobs": f"{site}/?search=llama3",
        "jobs-many": f"{site}/?namespace=many&page=2",
        "job": job,
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
                if name == "pasted":
                    await pasted(page)
                for width in WIDTHS:
                    for scheme in SCHEMES:
                        await page.look(width, scheme)
                        found[name, width, scheme] = {
                            "overflow": await page.js(browser.OVERFLOW),
                            "sizes": await page.js(browser.SIZES),
                            "lost": await page.js(browser.LOST),
                            "axe": await page.findings(),
                            "picture": await page.picture(width, TALLEST[width])
                            if name in SHOWN[width]
                            else b"",
                        }
            found["said"] = list(page.complaints)
            found["forms"] = {
                "what if": await best(page, f"{desk}/", "gpus", "128", "256", "512"),
                "what if, wrong": await best(page, f"{desk}/", "gpus", "many", "some", "all"),
                "beside a job": await best(page, job, "global_batch_size", "1024", "4096", "512"),
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


async def pasted(page):
    """Write a few words into the form for a paste, press the button, and open all that the answer
    folds away.
    """
    await page.js(f"document.getElementById('pasted').value = '{WORDS}'; 0")
    await page.js("document.querySelector('form button').click(); 0")
    for _ in range(1200):
        await asyncio.sleep(0.05)
        if await page.js(
            "document.readyState === 'complete' && !!document.querySelector('dl.brief')"
        ):
            break
    await page.js("document.querySelector('details').open = true; 0")


async def best(page, url, field, *values):
    """The first answer that is there in time, else the last: a machine may be busy once, and no
    value is asked twice.
    """
    for value in values:
        told = await sent(page, url, field, value)
        if 0 < told[0] < PATIENCE:
            break
    return (*told, value)


async def sent(page, url, field, value):
    """Fill a field, press the button; seconds until the answer is there, and what its first heading
    and the field say.
    """
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
            await page.js(
                "document.activeElement.id || document.activeElement.textContent.slice(0, 30)"
            )
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
    assert len(seen(walked)) == 12 * len(WIDTHS) * len(SCHEMES)
    assert {key: one["overflow"] for key, one in seen(walked).items() if one["overflow"] > 0} == {}


def test_no_text_lies_off_the_screen_and_no_row_or_page_is_endless(walked):
    """At 390 px a job's page was 13,363 px tall, and the messages of its conditions lay off
    the screen.
    """
    assert {key: one["lost"] for key, one in seen(walked).items() if one["lost"]} == {}
    sizes = {(*key[:2], *one["sizes"]) for key, one in seen(walked).items()}
    assert [one for one in sizes if one[2] > LONG[one[1]] or one[3] > TALL[one[1]]] == []


def test_the_pages_show_a_fleet_that_can_be(walked):
    """The gallery had 2,048 GPUs on 16 nodes."""
    world, keys = fleet()
    for key in keys:
        status = world.status(key)
        sizes = (
            parse_strategy(text, gpus=8 * status["inputs"]["nodes"])
            for text in (
                status["recommendation"]["strategy"]["text"],
                status["current"]["strategy"],
            )
        )
        assert [one.tp * one.pp * one.cp * one.dp for one in sizes] == [
            8 * status["inputs"]["nodes"]
        ] * 2
    assert [world.status(key)["health"] for key in keys] == [
        "Stuck",
        "Drifting",
        "Healthy",
        "NotSeen",
        "Healthy",
    ]
    assert {world.condition(key, "MemoryAccurate")[1] for key in keys} <= {
        "WithinBand",
        "NotSeen",
        "Stuck",
    }


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
    assert {
        name: seconds for name, (seconds, *_) in forms.items() if not 0 < seconds < PATIENCE
    } == {}
    assert [name for name, (_, _, kept, asked) in forms.items() if kept != asked] == []
    asked = forms["what if"][-1]
    assert {name: heading for name, (_, heading, *_) in forms.items()} == {
        "what if": f"llama3-8b on {asked} h100-80gb-sxm: what if",
        "what if, wrong": "What if",
        "beside a job": "research/pretrain-llama3-405b-run-1",
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
            shot.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
                path, optimize=True
            )
        assert path.stat().st_size <= LARGEST
        kept = Image.open(path).convert("RGB")
        assert kept.width == shot.width == width
        assert abs(sum(kept.getpixel((0, 0))) - sum(shot.getpixel((0, 0)))) < 60, (
            "light is light, dark is dark"
        )

"""A real Chromium through its own protocol: pages are opened, measured and judged by
axe-core's rules.
"""

import asyncio
import base64
import importlib.util
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)  # fmt: skip
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SIZES = """[document.documentElement.scrollHeight,
    Math.max(0, ...[...document.querySelectorAll('tr')].map(row => row.getBoundingClientRect().height))]"""
"""Height of the page, and of its tallest row. [px]"""
LOST = """(() => {
    const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
    while (walk.nextNode()) {
        range.selectNodeContents(walk.currentNode);
        const seen = walk.currentNode.parentElement.checkVisibility() && !walk.currentNode.parentElement.matches('.skip, title, desc, option');
        const far = [...range.getClientRects()].some(one => one.width > 1 && (one.left < -1 || one.right > innerWidth + 1));
        if (seen && far && walk.currentNode.data.trim()) found.push(walk.currentNode.data.trim().slice(0, 60));
    }
    return found;
})()"""
"""Text that lies beside the window."""
AXE = """axe.run(document, {resultTypes: ['violations']}).then(found => JSON.stringify(found.violations
    .filter(one => ['serious', 'critical'].includes(one.impact))
    .map(one => one.id + ': ' + one.nodes.map(node => node.target.join(' ')).slice(0, 3).join(', '))))"""


def missing():
    """Why no page can be opened here; empty where one can."""
    if not any(map(shutil.which, NAMES)):
        return f"none of {', '.join(NAMES)} is on PATH"
    return "" if rules_file() else "axe-core is not installed: see requirements/models.in"


def rules_file():
    """The rules, as one script."""
    spec = importlib.util.find_spec("axe_playwright_python")
    return Path(spec.origin).with_name("axe.min.js") if spec else None


class Page:
    """One tab."""

    def __init__(self, socket):
        self._socket = socket
        self._number = itertools.count(1)
        self.complaints = []
        """What the page complained about: scripts or styles that its policy forbids, files that are
        not there.
        """

    async def call(self, method, **words):
        number = next(self._number)
        await self._socket.send_json({"id": number, "method": method, "params": words})
        while True:
            message = json.loads((await asyncio.wait_for(self._socket.receive(), 30)).data)
            if message.get("method") == "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                return message["result"]

    async def js(self, expression):
        reply = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    async def look(self, width, scheme):
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    async def open(self, url):
        """Seconds until it is there."""
        began = time.monotonic()
        await self.call("Page.navigate", url=url)
        await self.loaded(url)
        return time.monotonic() - began

    async def loaded(self, url=""):
        for _ in range(600):
            state = await self.js("document.readyState + ' ' + location.href")
            if state.startswith("complete") and state.partition(" ")[2].startswith(url):
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{url} does not come: {state}")

    async def findings(self):
        """What axe-core calls serious or critical."""
        if not await self.js("typeof axe === 'object'"):
            await self.js(rules_file().read_text("utf-8") + ";0")
        return json.loads(await self.js(AXE))

    async def picture(self, width, most=1500):
        height = min(most, await self.js("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = await self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def browser():
    """A fresh Chromium with one tab."""
    program = next(path for name in NAMES if (path := shutil.which(name)))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    tabs = await answer.json()
                address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    page = Page(socket)
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
        finally:
            running.kill()
            running.wait()


async def _port(file):
    for _ in range(1500):
        if file.exists() and (text := file.read_text()).count("\n"):
            return int(text.splitlines()[0])
        await asyncio.sleep(0.02)
    raise AssertionError("Chromium does not start")

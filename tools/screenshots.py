"""Pictures of the operator's page: docs/pictures/*.png, from a running stack (`make up`) through a headless Chromium.

python tools/screenshots.py                    the stack of `make up`
python tools/screenshots.py --url http://…     any operator that serves its page
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
STATE = ROOT / ".cache" / "up" / "state.json"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
SCHEMES = {"light": "1", "dark": "0"}
"""Values of Chromium's preferredColorScheme."""
WIDTH, HEIGHT = 1180, 1900
LARGEST = 150_000
"""Bytes of a picture. [B]"""
PAGES = {
    "jobs": "/",
    "job": "/jobs/trainingjobs.mofa.dev/default/llama3-405b",
    "profile": "/profiles/h100-east",
}


class NoPicture(Exception):
    """Why there is no picture."""


def browser() -> str | None:
    """A Chromium on PATH."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def chromium(*flags: str, url: str, timeout: float = 60.0) -> str:
    """Let a fresh Chromium open a page; the result is what it prints."""
    program = browser()
    if program is None:
        raise NoPicture(f"none of {', '.join(BROWSERS)} is on PATH")
    with tempfile.TemporaryDirectory() as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", *flags, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode:
        raise NoPicture(f"{program} ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def shoot(url: str, scheme: str, path: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
    """A picture of a page, without the empty space below it, in as few colours as it has."""
    from PIL import Image, ImageChops

    chromium(
        f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--screenshot={path}", url=url,
    )  # fmt: skip
    whole = Image.open(path).convert("RGB")
    ground = Image.new("RGB", whole.size, whole.getpixel((0, whole.height - 1)))
    box = ImageChops.difference(whole, ground).getbbox()
    bottom = whole.height if box is None else min(whole.height, box[3] + 16)
    whole.crop((0, 0, width, bottom)).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    if path.stat().st_size > LARGEST:
        raise NoPicture(f"{path.name} has {path.stat().st_size:,} bytes; {LARGEST:,} is the most")


def settle(url: str) -> None:
    """Wait until a page has its answer in full: it is computed once, and then the picture finds it."""
    for _ in range(20):
        with urllib.request.urlopen(url, timeout=30) as answer:
            if b"still being computed" not in answer.read():
                return
    raise NoPicture(f"{url}: the advice in full does not come")


def address() -> str:
    """Where the stack of `make up` serves its page."""
    if not STATE.exists():
        raise NoPicture("nothing runs; start it with `make up`, or give --url")
    found: Mapping[str, str] = json.loads(STATE.read_text(encoding="utf-8"))
    return found["ADVISOR_URL"]


def main() -> int:
    """Take every picture."""
    parser = argparse.ArgumentParser(description="Write docs/pictures/*.png.")
    parser.add_argument("--url", help="address of an operator that serves its page")
    given = parser.parse_args().url
    try:
        url = (given or address()).rstrip("/")
        PICTURES.mkdir(parents=True, exist_ok=True)
        for name, path in PAGES.items():
            settle(url + path)
            for scheme in SCHEMES:
                shoot(url + path, scheme, PICTURES / f"{name}-{scheme}.png")
    except (NoPicture, OSError) as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

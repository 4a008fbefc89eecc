"""Nothing comes into the image whose hash was not known before."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_whatever_the_image_installs_is_locked_by_its_hash():
    text = re.sub(r"\\\n\s*", "", (ROOT / "operator" / "Dockerfile").read_text("utf-8"))
    installs = [
        one
        for line in text.splitlines()
        for one in line.split("&&")
        if " install " in one and not line.startswith("#")
    ]
    assert len(installs) == 3
    for one in installs:
        assert "--require-hashes" in one or "--no-deps /tmp/wheel/" in one, one
    for name in re.findall(r"-r /tmp/(\S+)", text):
        locked = re.findall(
            r"^[a-z0-9].*==.*$", (ROOT / "requirements" / name).read_text("utf-8"), re.MULTILINE
        )
        assert locked
        assert all(line.rstrip().endswith("\\") for line in locked), "each is followed by its hashes"

"""The page of a run on a real node: what was seen, in order, with pictures that the run draws."""

import shutil
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from mofa_model import plots

NAME = "real-node.md"
STEPS, SCREEN = "real-node.svg", "real-node.png"
HEAD = """\
# A real node, and what was seen on it

<!-- Written by `make e2e` from what it saw; it is not edited by hand. -->

`make e2e` starts a control plane and a node whose pods really run (kubelet, containerd, runc, kube-proxy, CoreDNS), builds the image from
the tree, installs the chart with helm, and applies a TrainingJob and a JobSet whose two pods train a small model with PyTorch on
the CPU. It kills a pod, then the kubelet, and removes everything. Each line was read from outside: by kubectl, from `/proc`, from the kernel's
cgroups, from Prometheus. `make up NODE=real WITH=jobset` gives you the same node to try; `deploy/local/toy` is the job.

The node's two GPUs are a number in its status and no devices, and the job runs on {cores} cores of a processor, while the prediction
is one of two H100s. The model is so small that either takes some ten milliseconds a step; whether the job is then told to be `Healthy` or
`Drifting` says nothing of the model, but the two figures stand side by side as they do on GPUs.

![steps of the trainer as Prometheus saw them, with the two kills](pictures/{steps})

| after | what was seen |
|---|---|
"""


def written(site, folder):
    """Write page and pictures to a folder of documents."""
    import os

    pictures = folder / "pictures"
    drawn(site, pictures / STEPS)
    rows = [f"| {at:.0f} s | {title} |" for at, title, _ in site.seen.lines]
    text = HEAD.format(cores=os.cpu_count(), steps=STEPS) + "\n".join(rows) + "\n"
    if screen(site.page, pictures / SCREEN):
        text += f"\nThe operator's page of the job, as it was served from its pod:\n\n![predicted and observed](pictures/{SCREEN})\n"
    for _, title, texts in site.seen.lines:
        blocks = [f"```text\n{text}\n```" for text in texts if text]
        if blocks:
            text += "\n" + "\n\n".join([f"**{title[0].upper()}{title[1:]}**", *blocks]) + "\n"
    text += f"\nRun of {datetime.now(UTC):%Y-%m-%d}, {site.seen.lines[-1][0] / 60:.1f} minutes.\n"
    (folder / NAME).write_text(text, encoding="utf-8")


def drawn(site, path):
    """Steps over time, with the moments at which something was killed."""
    seconds = time.time() - site.seen.since
    points = site.over_time("max(mofa_train_step)", seconds)
    ettr = site.over_time("max(mofa_job_observed_ettr_ratio)", seconds)
    with plots.picture(str(path), width=8.0, height=3.4) as axes:
        axes.plot(
            [at - site.seen.since for at, _ in points],
            [step for _, step in points],
            ".",
            color=plots.COLORS[0],
            label="last finished step",
        )
        for at, what in site.marks:
            axes.axvline(at - site.seen.since, color=plots.COLORS[1], lw=1, ls=":")
            axes.annotate(
                what,
                (at - site.seen.since, 0.98),
                xycoords=("data", "axes fraction"),
                rotation=90,
                va="top",
                ha="right",
                fontsize=7,
            )
        axes.set(xlabel="time of the run [s]", ylabel="step")
        other = axes.twinx()
        other.plot(
            [at - site.seen.since for at, _ in ettr],
            [100 * ratio for _, ratio in ettr],
            color=plots.COLORS[2],
            lw=1,
        )
        other.set(ylabel="observed ETTR [%]", ylim=(0, 100))


def screen(page, path):
    """A picture of a page by a browser; False where there is none."""
    program = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if program is None or not page:
        return False
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        command = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1000,900",
            f"--screenshot={path}",
            file.as_uri(),
        ]
        subprocess.run(command, capture_output=True, check=False, timeout=60)
    return path.exists()

"""A real Prometheus on a loopback port, with a past that was made up.

    with Processes(folder) as processes:
        server = Prometheus(processes, folder / "prometheus", scrape=[Scrape(job="trainer",
            target="127.0.0.1:9400")])
        backfill(text, server.data)
        server.start()
        server.ask("count(up)")

A block of history must end before the server's first scrape: at its next start the server drops
what its write-ahead log holds from before the end of the newest block, and a block that ends in the
future would refuse every scrape until then.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mofa_local import LocalStackError, binaries
from mofa_local.ports import HOST, free_port
from mofa_local.processes import COLLECTED, Processes, answers

RETENTION: Final = "400d"
"""Longer than any window that the operator may ask for."""
LONGEST_QUERY: Final = "2m"
"""Time after which the server gives up a query, as by default."""
MEMORY: Final = "600MiB"
"""Where the server's garbage collector starts to work hard; queries over months would else
double it.
"""
LONGEST_BLOCK: Final = "1458h"
"""promtool reads its input once for every block that it makes, so there should be few."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scrape:
    """A target that is scraped."""

    job: str
    """Value of its label `job`."""
    target: str
    """host:port."""
    interval: str = "5s"
    """Time between scrapes."""
    instance: str | None = None
    """Value of its label `instance`; missing = the target."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further labels."""
    honor: bool = False
    """Whether the target's own labels, such as `instance`, stand before these."""
    proxy: str | None = None
    """Address of the HTTP proxy by which the target is reached: pods of a real node."""


def backfill(text: str | Path, data: Path) -> list[Path]:
    """Make blocks of an OpenMetrics text (or a file with one) in a data folder; the new
    blocks' folders.
    """
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.parent) as made:
        source = text if isinstance(text, Path) else Path(made) / "text"
        if isinstance(text, str):
            source.write_text(text, encoding="utf-8")
        into = Path(made) / "blocks"
        command = [
            str(binaries.path("promtool")),
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--quiet",
        ]
        done = subprocess.run(
            [*command, f"--max-block-duration={LONGEST_BLOCK}", str(source), str(into)],
            capture_output=True, text=True, check=False, env=os.environ | COLLECTED,
        )  # fmt: skip
        if done.returncode:
            raise LocalStackError(
                f"promtool cannot make blocks of the history: {done.stderr.strip()}"
            )
        return [Path(shutil.move(block, data / block.name)) for block in _blocks(into)]


def _blocks(folder: Path) -> list[Path]:
    return sorted(meta.parent for meta in folder.glob("*/meta.json"))


class Prometheus:
    """One server; `processes` owns its process."""

    def __init__(
        self,
        processes: Processes,
        folder: Path,
        *,
        scrape: Sequence[Scrape] = (),
        rules: Sequence[Path] = (),
        port: int | None = None,
        name: str = "prometheus",
        most_samples: int | None = None,
    ) -> None:
        """`most_samples` is what one query may hold; missing = Prometheus' default. [1]"""
        self.processes = processes
        self.most_samples = most_samples
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port() if port is None else port
        self.name = name
        self.data.mkdir(parents=True, exist_ok=True)
        self.configure(scrape, rules)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://{HOST}:{self.port}"

    def configure(self, scrape: Sequence[Scrape], rules: Sequence[Path] = ()) -> None:
        """Write the server's configuration; `reload` brings it to a server that runs."""
        config = {
            "global": {
                "scrape_interval": "5s",
                "scrape_timeout": "4s",
                "evaluation_interval": "15s",
            },
            "rule_files": [str(rule.resolve()) for rule in rules],
            "scrape_configs": [_scrape_config(target) for target in scrape],
        }
        self._file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    def start(self) -> None:
        """Start the server, and wait until it answers queries."""
        most = self.most_samples
        limit = [] if most is None else [f"--query.max-samples={most}"]
        self.processes.start(
            self.name,
            [
                binaries.path("prometheus"),
                f"--config.file={self._file}",
                f"--storage.tsdb.path={self.data}",
                f"--storage.tsdb.retention.time={RETENTION}",
                f"--query.timeout={LONGEST_QUERY}",
                *limit,
                "--storage.tsdb.min-block-duration=2h",
                # equal to the longest: history is not compacted again
                "--storage.tsdb.max-block-duration=2h",
                f"--web.listen-address={HOST}:{self.port}",
                "--web.enable-lifecycle",
                "--log.level=warn",
            ],
            environment={"GOMEMLIMIT": MEMORY},
            ready=answers(f"{self.url}/-/ready"),
        )

    def stop(self) -> None:
        """Stop the server; its data stays."""
        self.processes.stop(self.name)

    def reload(self) -> None:
        """Read the configuration and the rule files anew."""
        self._post("/-/reload", {})

    def add_history(self, text: str | Path) -> list[Path]:
        """Back-fill a server that may run. It looks for new blocks once a minute, so one that runs
        is started again.
        """
        runs = self.name in self.processes
        if runs:
            self.stop()
        made = backfill(text, self.data)
        if runs:
            self.start()
        return made

    def ask(self, query: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every series that a query gives at a moment (missing = now)."""
        form = {"query": query} | ({} if at is None else {"time": str(at)})
        answer = self._post("/api/v1/query", form)["data"]
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in answer["result"]]

    @property
    def _file(self) -> Path:
        return self.folder / "prometheus.json"

    def _post(self, path: str, form: Mapping[str, str]) -> Any:
        body = urllib.parse.urlencode(form).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}{path}", data=body, timeout=120) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise LocalStackError(
                    f"{self.name}: {path}: {error.read().decode('utf-8', 'replace')}"
                ) from error
        return json.loads(text) if text else None


def _scrape_config(scrape: Scrape) -> dict[str, Any]:
    labels = dict(scrape.labels) | (
        {} if scrape.instance is None else {"instance": scrape.instance}
    )
    return {
        "job_name": scrape.job,
        "scrape_interval": scrape.interval,
        "scrape_timeout": scrape.interval,
        "honor_labels": scrape.honor,
        "static_configs": [{"targets": [scrape.target], "labels": labels}],
    } | ({} if scrape.proxy is None else {"proxy_url": scrape.proxy})

"""A Prometheus that scrapes two tenants, as a cluster's does: what a target says of itself stands
beside where it runs.
"""

import contextlib
import threading
import time
from collections import defaultdict
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mofa_local import binaries
from mofa_local.ports import HOST
from mofa_local.processes import Processes
from mofa_local.prometheus import Prometheus, Scrape

VICTIM, EVIL = "research", "evil"


class Target:
    """A pod that publishes what its owner likes; `$n` is a step that advances."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.text = ""
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                body = target.text.replace("$n", str(int(time.time() * 10))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                with contextlib.suppress(ConnectionError):  # who asked has gone
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format, *args):
                pass

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def scrape(self):
        """As a PodMonitor makes it: the labels of the target win over its own words."""
        where = {"namespace": self.namespace, "pod": f"{self.namespace}-0"}
        address = f"{HOST}:{self.server.server_address[1]}"
        return Scrape(job=f"{self.namespace}-trainer", target=address, interval="1s", labels=where)


class Site:
    """Two tenants, a kube-state-metrics, and the Prometheus that sees them.

    The second tenant has a target more, of which Prometheus honours the labels: by them it may say
    that it is anybody.
    """

    def __init__(self, processes, folder):
        self.victim, self.evil, self.state = Target(VICTIM), Target(EVIL), Target("")
        self.honoured = Target(EVIL)
        cluster = Scrape(job="state", target=self.state.scrape.target, interval="1s", honor=True)
        honoured = replace(self.honoured.scrape, job="evil-honoured", honor=True)
        self.prometheus = Prometheus(
            processes,
            folder,
            scrape=[self.victim.scrape, self.evil.scrape, cluster, honoured],
            name="hostile",
        )

    def say(self, *, victim="", evil="", state="", honoured=""):
        """What is published from now on; returns when it was scraped twice."""
        self.victim.text, self.evil.text, self.state.text = victim, evil, state
        self.honoured.text = honoured
        since, seen = time.time(), defaultdict(set)
        while len(seen) < 4 or min(map(len, seen.values())) < 3:
            time.sleep(0.2)
            for labels, at in self.prometheus.ask(f"timestamp(up) > {since}"):
                seen[labels["job"]].add(at)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if binaries.find("prometheus") is None:
        pytest.skip("there is no Prometheus here; `make cluster-tools` builds one")
    with Processes(tmp_path_factory.mktemp("hostile")) as processes:
        made = Site(processes, tmp_path_factory.mktemp("prometheus"))
        made.prometheus.start()
        yield made
        for part in (made.victim, made.evil, made.state, made.honoured):
            part.server.shutdown()
            part.server.server_close()

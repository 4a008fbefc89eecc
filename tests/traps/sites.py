"""Small histories of the ways of other sites, and looked at once."""

from small_histories import BEGIN, END, HOUR
from traps.kept import vignette

# ---------------------------------------------------------------- what the ways of other sites look like


def cut(runs, a, b):
    """Runs without their samples from a to b."""
    return [
        [part[0], len(part), step, value]
        for first, count, step, value in runs
        for times in [range(first, first + count * step, step)]
        for part in ([t for t in times if t < a], [t for t in times if t >= b])
        if part
    ]


@vignette(
    "the exporters of the hosts are rolled to a new version, each silent for three minutes",
    late=True,
)
def _(c):
    c.job("calm", range(8), "jobset")
    for n in range(10):
        t = c.at(18) + 200 * n
        c.dark[c.nodes[n]].append((t, t + 180))


@vignette(
    "a trainer ends by itself every six hours with a checkpoint and exit 0, and its containers start again",
    late=True,
)
def _(c):
    j = c.job("six", range(8))
    for k in range(1, 8):
        j.exit(c.at(6 * k + 0.4), 0, why="Completed", spread=8, back=6)


@vignette("every run is cut off after twelve hours by `timeout`, exit 124, and goes on", late=True)
def _(c):
    j = c.job("cap", range(6), "volcano", start=BEGIN - 2 * HOUR)
    for k in range(4):
        j.exit(c.at(10 + 12 * k) + 25 * k, 124, spread=3, back=10)


@vignette(
    "kube-state-metrics gets a new address at noon, and all its series with it; a host dies in the evening",
    late=True,
)
def _(c):
    j = c.job("addr", range(8), "jobset")
    t, noon = c.at(33), c.at(21)
    c.dies(4, t, t + 1500)
    c.node(4, t, t + 1500, "node-down")
    j.again(t + 330, wait=25, moved={4: 8})
    j.says(t, t + 900, "node-down")
    plain_series = c.series

    def series():
        for metric, labels, runs in plain_series():
            old, new = "10.0.0.1:8080", "10.0.7.9:8080"
            yield metric, labels, cut(runs, noon, END + 1) if old in labels else runs
            if old in labels:
                yield metric, labels.replace(old, new), cut(runs, 0, noon)

    c.series = lambda: [line for line in series() if line[2]]


@vignette(
    "two Prometheus servers write to one store, each away for an hour once; a host dies while one is",
    late=True,
)
def _(c):
    j = c.job("ha", range(8))
    t = c.at(13)
    c.dies(1, t, t + 2000)
    c.node(1, t, t + 2000, "node-down")
    j.exit(t + 55, 1)
    j.places[1].exits = []
    j.move(1, 9, t + 345, t + 350)
    j.says(t, t + 800, "node-down")
    plain_series = c.series

    def series():
        for metric, labels, runs in plain_series():
            yield metric, f'{labels},replica="a"', cut(runs, t - 900, t + 2700)
            late = [[first + 4, count, step, value] for first, count, step, value in runs]
            yield metric, f'{labels},replica="b"', cut(late, c.at(30), c.at(31))

    c.series = lambda: [line for line in series() if line[2]]


@vignette(
    "from noon on Prometheus scrapes once in two minutes instead of every 15 s",
    late=True,
    scrape=15,
)
def _(c):
    j = c.job("rare", range(8), "jobset")
    t, noon = c.at(40), c.at(24)
    c.dies(6, t, t + 1800)
    c.node(6, t, t + 1800, "node-down")
    j.again(t + 350, wait=30, moved={6: 9})
    j.says(t, t + 900, "node-down")
    plain_series = c.series

    def series():
        for metric, labels, runs in plain_series():
            kept = cut(runs, noon, END + 1)
            for first, count, step, value in cut(runs, 0, noon):
                times = range(first, first + count * step, step)
                few = [at for at in times if (at - first) % 120 == 0]
                kept += [[at, 1, step, value] for at in few]
            yield metric, labels, kept

    c.series = lambda: [line for line in series() if line[2]]


@vignette(
    "two exporters run on each host, and their boot times differ by a second", late=True, nodes=12
)
def _(c):
    j = c.job("twin", range(10), "volcano")
    t = c.at(17)
    c.dies(3, t, t + 900)
    c.node(3, t, t + 900, "node-down")
    j.exit(t + 40, 1)
    j.places[3].exits = []
    j.move(3, 11, t + 340, t + 345)
    j.says(t, t + 800, "node-down")
    plain_series = c.series

    def series():
        for metric, labels, runs in plain_series():
            yield metric, labels, runs
            if metric == "node_boot_time_seconds":
                more = [[first + 5, count, step, value + 1] for first, count, step, value in runs]
                yield (
                    metric,
                    labels.replace(":9100", ":9200").replace("node-exporter", "host"),
                    more,
                )

    c.series = lambda: list(series())


@vignette(
    "a node is cordoned for the evening while its job goes on; the host dies before anybody drains it",
    late=True,
)
def _(c):
    j = c.job("late", range(8), "jobset")
    t = c.at(22)
    c.cordon(5, t - 5 * HOUR, t + 9 * HOUR)
    c.dies(5, t, t + 3 * HOUR)
    c.node(5, t, t + 3 * HOUR, "node-down")
    j.again(t + 330, wait=20, moved={5: 8})
    j.says(t, t + 800, "node-down")


@vignette(
    "a host hangs for twenty-five minutes and goes on on the same boot; collectives time out after ten",
    late=True,
)
def _(c):
    j = c.job("hang", range(8))
    t = c.at(11)
    c.not_ready[c.nodes[2]].append((t + 40, t + 1500))
    c.dark[c.nodes[2]].append((t, t + 1490))
    c.node(2, t, t + 1500, "node-down")
    j.exit(t + 620, 1)
    j.places[2].exits = []
    j.move(2, 8, t + 345, t + 350)
    j.says(t, t + 1000, "node-down")


@vignette(
    "a kubelet's certificate runs out: the node is not ready for three hours, its host is well, its pod goes elsewhere",
    late=True,
)
def _(c):
    j = c.job("cert", range(8), "jobset")
    t = c.at(35)
    c.not_ready[c.nodes[7]].append((t, t + 3 * HOUR))
    c.node(7, t, t + 3 * HOUR, "kubelet-down")
    j.again(t + 345, wait=25, moved={7: 9})
    j.says(t, t + 900, "kubelet-down")


@vignette("two jobs share the GPUs of four hosts; one of these hosts dies", late=True)
def _(c):
    t = c.at(27)
    for name, kind in (("left", "jobset"), ("right", "pytorch")):
        j = c.job(name, range(4), kind)
        if kind == "jobset":
            j.again(t + 350, wait=25, moved={1: 8})
        else:
            j.exit(t + 600, 1)
            j.places[1].exits = []
            j.move(1, 9, t + 345, t + 350)
        j.says(t, t + 1000, "node-down")
    c.dies(1, t, t + 4000)
    c.node(1, t, t + 4000, "node-down")


@vignette("a job is done, and three minutes later one of its hosts dies", late=True)
def _(c):
    j = c.job("done", range(8), "jobset")
    t = c.at(16)
    j.stops(t)
    c.dies(3, t + 180, t + 1500)
    c.node(3, t + 180, t + 1500, "node-down")


@vignette(
    "within five minutes a user deletes his job and a host of another job dies", late=True, nodes=12
)
def _(c):
    t = c.at(29)
    gone = c.job("mine", range(3), "pytorch")
    for pod in gone.places.values():
        pod.end = t - 120
    gone.places = {}
    j = c.job("theirs", range(3, 11), "jobset")
    c.dies(6, t, t + 2400)
    c.node(6, t, t + 2400, "node-down")
    j.again(t + 335, wait=25, moved={6: 11})
    j.says(t, t + 900, "node-down")


@vignette(
    "two nodes are unknown for four minutes, three times a day; exporters speak and pods go on",
    late=True,
)
def _(c):
    c.job("two", range(8), "volcano")
    for h in (5, 13.5, 20, 31, 38.2, 44):
        for n in (1, 2):
            c.not_ready[c.nodes[n]].append((c.at(h) + 3 * n, c.at(h) + 245))
            c.node(n, c.at(h), c.at(h) + 245, "flap", False)


@vignette(
    "an image that does not exist: eight pods never start, and are deleted after an hour", late=True
)
def _(c):
    c.job("fine", range(5), "jobset")
    j = c.job("typo", range(5, 9), start=c.at(8))
    for pod in j.places.values():
        pod.started = pod.end = c.at(9)


@vignette(
    "a host is up again after five minutes, dies once more after three, and is well after six",
    late=True,
)
def _(c):
    j = c.job("loop", range(8), "jobset")
    t = c.at(25)
    c.dies(0, t, t + 300)
    c.dies(0, t + 480, t + 860)
    c.node(0, t, t + 860, "node-down")
    j.again(t + 320, wait=30, moved={0: 9})
    j.says(t, t + 900, "node-down")


@vignette(
    "one rack's power takes five hosts, with parts of two jobs; all are back after twenty minutes",
    late=True,
    nodes=15,
)
def _(c):
    t = c.at(23)
    for name, nodes, kind in (("one", range(2, 8), "jobset"), ("two", range(8, 14), "volcano")):
        j = c.job(name, nodes, kind)
        j.again(t + 1260, wait=30)
        j.says(t, t + 1800, "rack-outage")
    for n in range(5, 10):
        c.dies(n, t + n % 3, t + 1200 + 5 * n)
    names = [c.nodes[n] for n in range(5, 10)]
    c.says("domain", names[0], t, t + 1250, "rack-outage", True, nodes=names)


@vignette(
    "a job with elastic workers grows by three pods in the evening; torchrun starts its workers anew in place",
    late=True,
    nodes=12,
)
def _(c):
    j = c.job("grow", range(8))
    j.make({8: 8, 9: 9, 10: 10}, c.at(20))


@vignette(
    "GPUs throttle for heat for a day: the counter of problems rises, nothing stops", late=True
)
def _(c):
    c.job("warm", range(8), "lws")
    for n in (2, 5):
        c.counters.append(
            (c.nodes[n], "ThermalThrottling", [c.at(10) + 600 * k for k in range(90)])
        )


@vignette(
    "nodes go for the night without a taint or a word, others come in the morning; jobs were done before",
    late=True,
    nodes=14,
)
def _(c):
    j = c.job("day", range(8), "jobset")
    j.stops(c.at(14))
    for n in range(4, 10):
        c.lives[c.nodes[n]] = [(BEGIN, c.at(14.3) + 12 * n)]
        c.node(n, c.at(14.3), c.at(14.4), "scaled-down", False)
    for n in range(10, 14):
        c.lives[c.nodes[n]] = [(c.at(26), END)]
        c.boots[c.nodes[n]] = [c.at(26) - 200]
    c.job("next", [0, 1, 2, 3, 10, 11, 12, 13], "jobset", start=c.at(26.5))

"""Small histories that were written after the rules stood, in two lots, and looked at once."""

from small_histories import BEGIN, END, HOUR
from traps.kept import vignette

# ---------------------------------------------------------------- written after the rules stood; looked at once


@vignette("a clock is set by 50 seconds: the boot time moves, nothing else", late=True)
def _(c):
    c.job()
    c.boots[c.nodes[3]].append(c.boots[c.nodes[3]][-1] + 50)
    c.shifted = {c.nodes[3]: c.at(19)}


@vignette("a JobSet is suspended for the night and goes on in the morning", late=True)
def _(c):
    j = c.job("night", kind="jobset")
    t = c.at(20)
    for pod in j.places.values():
        pod.end = t
    j.make(dict(enumerate(range(8))), t + 9 * HOUR)
    j.says(t, t + 9 * HOUR, "suspended", False)


@vignette(
    "a node is burnt in under its cordon: three XIDs of hardware and two reboots that nobody feels",
    late=True,
)
def _(c):
    c.job(nodes=range(7))
    c.cordon(8, c.at(3), c.at(30))
    for h, code in ((6, 79), (12, 95), (20, 119)):
        c.xid(8, c.at(h), code, until=c.at(h) + HOUR)
    for h in (8, 22):
        c.dies(8, c.at(h), c.at(h) + 420)
    c.node(8, c.at(3), c.at(30), "planned-drain", False)


@vignette("two hosts of two racks die in the same minute", late=True, nodes=15)
def _(c):
    j = c.job()
    t = c.at(17)
    for n in (1, 7):
        c.dies(n, t + 5 * n, t + 2600)
        c.node(n, t + 5 * n, t + 2600, "node-down")
    j.again(t + 380, moved={1: 11, 7: 12})
    j.says(t, t + 800, "node-down")


@vignette(
    "the power of the site fails: all hosts die and are back after half an hour", late=True, nodes=8
)
def _(c):
    j = c.job(nodes=range(6))
    t = c.at(25)
    for n in range(8):
        c.dies(n, t, t + 1800 + 20 * n)
    c.says("domain", "site", t, t + 1900, "rack", True, nodes=c.nodes)
    j.exit(t + 1950, 255)
    j.says(t, t + 2300, "rack")


@vignette(
    "a disk fills: not ready for forty minutes on the same boot, its pod is evicted", late=True
)
def _(c):
    j = c.job()
    t = c.at(14)
    c.not_ready[c.nodes[5]].append((t, t + 2400))
    c.node(5, t, t + 2400, "kubelet-down")
    j.exit(t + 330, (1, 1), first=0)
    j.places[5].exits = []
    j.move(5, 9, t + 305, t + 315)
    j.says(t, t + 800, "kubelet-down")


@vignette("a host dies a quarter of an hour before the window ends, and is not back", late=True)
def _(c):
    j = c.job()
    t = END - 900
    c.not_ready[c.nodes[2]].append((t + 40, END))
    c.dark[c.nodes[2]].append((t, END))
    c.node(2, t, END, "node-down")
    j.exit(t + 45, 1)
    j.move(2, 8, t + 345, t + 350)
    j.says(t, END, "node-down")


@vignette(
    "nobody tells boot times: a host dies for an hour, DCGM alone is silent",
    late=True,
    exporters=False,
)
def _(c):
    j = c.job()
    t = c.at(31)
    c.dies(6, t, t + 3600)
    c.node(6, t, t + 3600, "node-down")
    j.again(t + 390, moved={6: 8})
    j.says(t, t + 800, "node-down")


@vignette("a program makes XID 13 on two nodes and all exit 1 at once, once", late=True)
def _(c):
    j = c.job()
    t = c.at(12)
    for n in (0, 4):
        c.xid(n, t - 1, 13)
        c.node(n, t, t, "user-xid", False)
    j.exit(t, 1, spread=10)
    j.says(t, t + 400, "user-crash", False)


@vignette(
    "kubelets are upgraded node by node: each is not ready for ninety seconds; pods go on",
    late=True,
)
def _(c):
    c.job()
    for k, n in enumerate(c.nodes):
        c.not_ready[n].append((c.at(9) + 300 * k, c.at(9) + 300 * k + 90))
        c.node(k, c.at(9) + 300 * k, c.at(9) + 300 * k + 90, "flap", False)


@vignette(
    "the same fatal XID twice on one GPU, ten hours apart; the node was reset without a reboot, the exporter too",
    late=True,
)
def _(c):
    j = c.job()
    for h in (9, 19):
        t = c.at(h)
        c.xid(3, t, 74, until=t + HOUR)
        c.cordon(3, t + 300, t + HOUR)
        c.node(3, t, t + HOUR, "gpu-fatal")
        j.again(t + 25, moved={3: 9} if h == 9 else {9: 3})
        if h == 9:
            j.says(t, t + 400, "gpu-fatal")
    c.truth.append(
        dict(
            kind="job",
            name=j.who,
            start=c.at(19),
            end=c.at(19) + 400,
            cause="resubmission",
            counts=True,
        )
    )


@vignette(
    "a flaky link: all exit 1 at once, five times in two days at odd hours, every restart trains on",
    late=True,
)
def _(c):
    j = c.job()
    for h in (6.3, 13.1, 17.9, 30.2, 41):
        j.exit(c.at(h), 1, spread=8)
        j.says(c.at(h) - 600, c.at(h) + 400, "nccl-timeout")


@vignette(
    "a data set has a bad shard: exit 1 after 41 minutes, four times from one checkpoint, then it is skipped and goes on in place",
    late=True,
)
def _(c):
    j = c.job("data")
    t = c.at(16)
    for k in range(4):
        at = t + k * (41 * 60 + 60)
        j.exit(at, 1, spread=9, back=40)
        j.says(at, at + 200, "user-crash-loop", False)


@vignette(
    "a scheduler preempts with a reason, and an API drain evicts one pod another day", late=True
)
def _(c):
    j = c.job("pre", kind="jobset")
    t = c.at(11)
    for pod in j.places.values():
        pod.disruption = "PreemptionByScheduler"
    j.again(t, wait=1800, phase="Failed")
    j.says(t, t + 2200, "preemption", False)
    u = c.at(33)
    for pod in j.places.values():
        pod.disruption = "EvictionByEvictionAPI"
    j.again(u, wait=30, phase="Failed")
    j.says(u, u + 400, "planned-drain", False)


@vignette(
    "nodes are taken away for good in the evening, idle, after a taint of the house's own autoscaler",
    late=True,
    nodes=12,
)
def _(c):
    c.job()
    for n in (10, 11):
        c.cordon(n, c.at(20), c.at(20) + 400, "scaler.example/going")
        c.lives[c.nodes[n]] = [(BEGIN, c.at(20) + 400)]
        c.node(n, c.at(20), c.at(20) + 400, "scale-down", False)


@vignette("a sidecar of one pod restarts again and again; training goes on", late=True)
def _(c):
    j = c.job()
    j.places[2].side = [c.at(h) for h in (5, 7, 9.5, 21)]


@vignette(
    "two jobs with one bug in a shared library fail at once every 20 minutes, six times", late=True
)
def _(c):
    for name, nodes in (("a1", range(4)), ("a2", range(4, 8))):
        j = c.job(name, nodes)
        for k in range(6):
            at = c.at(10) + k * 1230 + (7 if name == "a2" else 0)
            j.exit(at, 1, spread=5, back=15)
            j.says(at, at + 100, "user-crash-loop", False)


# ---------------------------------------------------------------- written last of all; the rules were not changed after


@vignette(
    "a load balancer loses half of the kubelets for six minutes, twice in an hour; pods go on",
    late=True,
    nodes=14,
)
def _(c):
    c.job()
    for h in (18, 18.6):
        for n in range(0, 14, 2):
            c.not_ready[c.nodes[n]].append((c.at(h) + n, c.at(h) + 370))
            c.node(n, c.at(h), c.at(h) + 370, "control-plane", False)


@vignette(
    "two thirds of the nodes have a taint by team, a third another; a fault on each side",
    late=True,
    nodes=12,
)
def _(c):
    for n in range(12):
        c.cordon(n, BEGIN, END, "squad/alpha" if n < 8 else "squad/beta")
    j = c.job()
    t, u = c.at(13), c.at(37)
    c.dies(1, t, t + 420)
    c.node(1, t, t + 420, "reboot")
    j.exit(t + 20, 1)
    j.says(t, t + 700, "reboot")
    c.xid(10, u, 79)
    c.cordon(10, u + 400, u + 2 * HOUR, "squad/hospital")
    c.node(10, u, u + 2 * HOUR, "gpu-lost")


@vignette(
    "a host dies while kube-state-metrics is away for twenty minutes; it is back before", late=True
)
def _(c):
    j = c.job()
    t = c.at(22)
    c.gaps.append((t - 60, t + 1200))
    c.dies(3, t, t + 900)
    c.node(3, t, t + 900, "node-down")
    j.again(t + 400)
    j.says(t, t + 900, "node-down")


@vignette("Pods of a JobSet fail by SIGSEGV of one rank, exit codes are not told, once", late=True)
def _(c):
    j = c.job("seg", kind="jobset")
    t = c.at(24)
    j.again(t, wait=30)
    j.says(t, t + 400, "process-crash")


@vignette(
    "a wrong path in the arguments: pods fail 40 seconds after each start, six attempts, then given up",
    late=True,
)
def _(c):
    j = c.job("args", kind="jobset", start=BEGIN + 3 * HOUR)
    t = BEGIN + 3 * HOUR
    for _ in range(6):
        t += 70
        j.says(t, t + 60, "user-crash-loop", False)
        j.again(t, wait=20)
        t += 20
    j.stops(t + 70, "Failed")


@vignette(
    "an operator drains one node by hand for a test, its pod moves, the node is back after two hours",
    late=True,
)
def _(c):
    j = c.job()
    t = c.at(27)
    c.cordon(4, t, t + 2 * HOUR)
    j.places[4].disruption = "EvictionByEvictionAPI"
    j.exit(t + 100, 1, first=1)
    j.places[4].exits = []
    j.move(4, 9, t + 95, t + 105)
    c.node(4, t, t + 2 * HOUR, "planned-drain", False)
    j.says(t + 95, t + 500, "planned-drain", False)


@vignette("XID 63 and 92 on four nodes in two days, nothing stops", late=True)
def _(c):
    c.job()
    for n, (h, code) in enumerate(((5, 63), (14, 92), (15, 63), (33, 92))):
        c.xid(n, c.at(h), code)
        c.node(n, c.at(h), c.at(h), "xid-warning", False)


@vignette(
    "a switch reboots: eight nodes are not ready for four minutes, NCCL gives up ten minutes later",
    late=True,
    nodes=16,
    rack=8,
)
def _(c):
    j = c.job()
    t = c.at(30)
    for n in range(8):
        c.not_ready[c.nodes[n]].append((t + 45, t + 250))
        c.dark[c.nodes[n]].append((t, t + 240))
    j.exit(t + 600, 1, spread=10)
    j.says(t, t + 1000, "nccl-timeout")


@vignette(
    "a node reboots itself every night at three, three minutes each; its job restarts in place",
    late=True,
)
def _(c):
    j = c.job()
    for h in (6, 30):
        t = c.at(h)
        c.dies(5, t, t + 200)
        c.node(5, t, t + 200, "reboot")
        j.exit(t + 25, 1)
        j.says(t, t + 500, "reboot")


@vignette(
    "one container of eight is killed by the kernel for memory of the host, not its limit: 137, Error; hours apart twice",
    late=True,
)
def _(c):
    j = c.job()
    for h in (9, 27):
        j.exit(c.at(h), (137, 1), spread=30, first=2)
        j.says(c.at(h), c.at(h) + 400, "process-crash")


@vignette(
    "a user restarts training from a notebook: pods deleted and made anew eleven times in a day, none failed",
    late=True,
)
def _(c):
    j = c.job("nb", range(4), "jobset", BEGIN + 4 * HOUR)
    t = BEGIN + 4 * HOUR
    for _ in range(11):
        t += c.r.randint(1500, 7000)
        j.says(t, t + 100, "resubmission", False)
        j.attempt = -1
        j.again(t, wait=90, phase="")
        t += 120


@vignette(
    "GPUs of a node are fewer at once and its XID says 79 an hour later, when the driver is asked",
    late=True,
)
def _(c):
    j = c.job()
    t = c.at(19)
    c.offered[c.nodes[7]] = {
        "nvidia_com_gpu": [(BEGIN, t, 8), (t, t + 4 * HOUR, 7), (t + 4 * HOUR, END, 8)]
    }
    c.xid(7, t + HOUR, 79)
    c.cordon(7, t + 4300, t + 4 * HOUR)
    c.node(7, t, t + 4 * HOUR, "gpu-lost")
    j.exit(t + 8, 1)
    j.move(7, 9, t + 80, t + 90)
    j.says(t, t + 500, "gpu-lost")

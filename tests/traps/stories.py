"""Small histories that tell longer stories, in two lots, and looked at once."""

from small_histories import BEGIN, END, HOUR
from traps.kept import vignette

# ---------------------------------------------------------------- written a session later, and looked at once


@vignette(
    "kexec: each of two hosts is up again before a scrape of two minutes looks, the kubelet was never seen away",
    late=True,
    scrape=120,
)
def _(c):
    j = c.job("fast", range(6), "volcano")
    for n, h in ((1, 8.3), (4, 29.7)):
        t = c.at(h)
        c.dark[c.nodes[n]].append((t, t + 80))
        c.boots[c.nodes[n]].append(t + 60)
        c.node(n, t, t + 100, "reboot")
        j.exit(t + 2, (255, 1), spread=40, first=n)
        j.says(t, t + 500, "reboot")


@vignette(
    "a lemon: one host dies three times in thirty hours, its pod goes to a spare and comes back each time",
    late=True,
)
def _(c):
    j = c.job("lemon", range(7), "lws")
    for k, h in enumerate((5, 16, 33)):
        t = c.at(h)
        c.dies(6, t, t + 1300)
        c.node(6, t, t + 1300, "node-down")
        j.exit(t + 35, 134, first=0)
        j.places[6].exits = j.places[6].exits[:-1]
        j.move(6, 9, t + 350, t + 360)
        j.says(t, t + 800, "node-down")
        if k < 2:  # a person puts it back in the evening
            u = t + 3 * HOUR
            c.cordon(9, u, u + HOUR)
            c.node(9, u, u + HOUR, "planned-drain", False)
            j.exit(u + 40, 143, first=0)
            j.places[6].exits = j.places[6].exits[:-1]
            j.move(6, 6, u + 35, u + 45)
            j.says(u + 30, u + 500, "planned-drain", False)


@vignette(
    "the spare dies twenty-five minutes after it took the place of a host that died",
    late=True,
    nodes=11,
)
def _(c):
    j = c.job("twice", range(8), "volcano")
    t = c.at(19)
    for k, (old, new) in enumerate(((3, 9), (9, 10))):
        a = t + 1900 * k
        c.dies(old, a, a + 7000)
        c.node(old, a, a + 7000, "node-down")
        j.exit(a + 30, 134, first=0)
        j.places[3].exits = j.places[3].exits[:-1]
        j.move(3, new, a + 350, a + 360)
        j.says(a, a + 800, "node-down")


@vignette(
    "the node controller taints by itself: unreachable with a host that is away, memory pressure where nothing happens",
    late=True,
)
def _(c):
    j = c.job("taints", range(8))
    t = c.at(14)
    c.dies(2, t, t + 800)
    c.cordon(2, t + 40, t + 800, "node.kubernetes.io/unreachable")
    c.node(2, t, t + 800, "node-down")
    j.exit(t + 60, 134, first=0)
    j.places[2].exits = []
    j.move(2, 8, t + 350, t + 355)
    j.says(t, t + 800, "node-down")
    u = c.at(30)
    c.cordon(5, u, u + 1800, "node.kubernetes.io/memory-pressure")
    c.conditions.append((c.nodes[5], "MemoryPressure", c.bools([(u, u + 1800)])))


@vignette(
    "a driver's operator taints node after node for four minutes while it looks; nothing is drained",
    late=True,
)
def _(c):
    c.job("calm", range(9), "lws")
    for n in range(10):
        t = c.at(20) + 420 * n
        c.cordon(n, t, t + 240, "nvidia.com/gpu-driver-upgrade")


@vignette(
    "firmware is written under a cordon: the job was moved in order, XID 79 stands after the reboot until the next",
    late=True,
)
def _(c):
    j = c.job("fw", range(7), "jobset")
    t = c.at(10)
    c.cordon(4, t, t + 2 * HOUR)
    j.again(t + 70, wait=40, moved={4: 8}, phase="", new_attempt=True)
    j.says(t + 60, t + 500, "planned-drain", False)
    c.dies(4, t + 1200, t + 1700)
    c.xid(4, t + 1800, 79, until=t + 3000)
    c.dies(4, t + 3100, t + 3500)
    c.node(4, t, t + 2 * HOUR, "planned-drain", False)


@vignette(
    "training is done: rank 0 succeeds, the others' teardown fails with 1 four seconds later; nobody makes them anew",
    late=True,
)
def _(c):
    j = c.job("done", range(8), "jobset", BEGIN + HOUR)
    t = c.at(26)
    for slot, pod in j.places.items():
        pod.end, pod.phase = t + 4 * (slot > 0), "Failed" if slot else "Succeeded"
    j.places = {}


@vignette(
    "its time is over: the pods of a Job fail with DeadlineExceeded, and the user starts another one an hour later",
    late=True,
)
def _(c):
    j = c.job("limit", range(5), "jobset", BEGIN + HOUR)
    t = c.at(13)
    for pod in j.places.values():
        pod.end, pod.phase, pod.reason = t, "Failed", "DeadlineExceeded"
    j.places = {}
    k = c.job("limit2", range(5), "jobset", t + HOUR)
    k.stops(c.at(40))


@vignette(
    "a queue takes back its quota: the JobSet is suspended for forty minutes, its nodes stay idle",
    late=True,
)
def _(c):
    j = c.job("quota", range(8), "jobset")
    t = c.at(21)
    for pod in j.places.values():
        pod.end = t
    j.make(dict(enumerate(range(8))), t + 2400)
    j.says(t, t + 2800, "suspended", False)


@vignette(
    "faults where nothing runs: an idle host dies, another idle one has XID 79, cordoned at once and booted anew",
    late=True,
)
def _(c):
    c.job("small", range(5), "volcano")
    t, u = c.at(9), c.at(24)
    c.dies(7, t, t + 2000)
    c.node(7, t, t + 2000, "node-down")
    c.xid(8, u, 79, until=u + 900)
    c.cordon(8, u + 10, u + 1500)
    c.dies(8, u + 900, u + 1300)
    c.node(8, u, u + 1500, "gpu-lost")


@vignette(
    "the image takes 25 minutes on the spare; the others' collectives time out twice meanwhile",
    late=True,
)
def _(c):
    j = c.job("pull", range(8))
    t = c.at(17)
    c.dies(5, t, t + 500)
    c.node(5, t, t + 500, "reboot")
    for k in range(3):
        j.exit(t + 40 + 640 * k, 134, spread=10, first=0)
    j.places[5].exits = []
    j.move(5, 8, t + 345, t + 350)
    j.places[5].started = t + 1850
    j.says(t, t + 2300, "reboot")


@vignette(
    "a provider mends a dead host: its object is deleted after twelve minutes and made again under its name after fifty",
    late=True,
)
def _(c):
    j = c.job("mend", range(8), "lws")
    t, name = c.at(28), c.nodes[1]
    c.not_ready[name].append((t + 40, t + 720))
    c.dark[name].append((t, t + 3000))
    c.lives[name] = [(BEGIN, t + 720), (t + 3000, END)]
    c.boots[name].append(t + 2900)
    c.node(1, t, t + 720, "node-lost")
    j.exit(t + 45, 134, first=0)
    j.places[1].exits = []
    j.move(1, 9, t + 400, t + 410)
    j.says(t, t + 900, "node-lost")


@vignette(
    "a condition of the house tells that a link is down; collectives time out after ten minutes, an agent cordons, the pod moves",
    late=True,
)
def _(c):
    j = c.job("link", range(8), "volcano")
    t = c.at(31)
    c.conditions += [
        (n, "InfinibandLinkDown", c.bools([(t, t + 2 * HOUR)] if k == 3 else []))
        for k, n in enumerate(c.nodes)
    ]
    c.cordon(3, t + 630, t + 2 * HOUR)
    j.exit(t + 600, 134, spread=8, first=0)
    j.places[3].exits = []
    j.move(3, 9, t + 640, t + 650)
    c.node(3, t, t + 2 * HOUR, "nic")
    j.says(t, t + 1100, "nic")


@vignette(
    "four nodes of one NVLink domain tell XID 137 within ninety seconds; two jobs lie on it",
    late=True,
    nodes=12,
    rack=4,
)
def _(c):
    a, b = c.job("left", range(6), "jobset"), c.job("right", range(6, 10), "jobset")
    t = c.at(22)
    for n in range(4, 8):
        c.xid(n, t + 22 * (n - 4), 137)
        c.cordon(n, t + 1000, t + 3 * HOUR)
    c.says("domain", "nvl", t, t + 3 * HOUR, "gpu-fatal", True, nodes=c.nodes[4:8])
    a.again(t + 15, moved={4: 10, 5: 11})
    b.exit(t + 60, 1)
    a.says(t, t + 500, "gpu-fatal")
    b.says(t + 40, t + 500, "gpu-fatal")


@vignette(
    "one pod of a gang makes room for a pod that the node needs; the others give up and start again",
    late=True,
)
def _(c):
    j = c.job("room", range(8), "volcano")
    t = c.at(12)
    j.places[2].disruption, j.places[2].phase = "PreemptionByScheduler", "Failed"
    j.exit(t + 50, 1, first=0)
    j.places[2].exits = []
    j.move(2, 9, t, t + 25)
    j.says(t, t + 500, "preemption", False)


@vignette(
    "a job waits three hours for nodes, trains, and its user takes it away for a smaller one of another name",
    late=True,
)
def _(c):
    j = c.job("big7b", range(8), "jobset", c.at(2))
    for pod in j.places.values():
        pod.started = c.at(5)
    j.stops(c.at(27), "")
    c.job("small7b", range(4), "jobset", c.at(27) + 300)


@vignette(
    "scrapes of 20 s: a process aborts (134) on a host whose kernel says nothing, the gang is made anew by its controller",
    late=True,
    scrape=20,
)
def _(c):
    j = c.job("abort", range(6), "volcano")
    t = c.at(34)
    j.again(t, wait=35)
    j.says(t, t + 500, "process-crash")


# ---------------------------------------------------------------- and a lot of longer stories, looked at once


@vignette(
    "two pods of a job lie on each host, of four GPUs; a host dies and both go to a spare",
    late=True,
)
def _(c):
    j = c.job("half", [0, 0, 1, 1, 2, 2, 3, 3], "jobset")
    t = c.at(16)
    c.dies(1, t, t + 2500)
    c.node(1, t, t + 2500, "node-down")
    for slot, pod in j.places.items():
        if slot not in (2, 3):
            pod.exits.append((t + 40 + slot, t + 52 + slot, 134, "Error"))
    for slot in (2, 3):
        j.move(slot, 8, t + 350, t + 355)
    j.says(t, t + 800, "node-down")


@vignette("a host dies while the job is just back from a planned move of another pod", late=True)
def _(c):
    j = c.job("move", range(8))
    t = c.at(20)
    c.cordon(2, t, t + 2 * HOUR)
    j.exit(t + 70, 143, first=0)
    j.places[2].exits = []
    j.move(2, 8, t + 60, t + 75)
    c.node(2, t, t + 2 * HOUR, "planned-drain", False)
    j.says(t + 60, t + 450, "planned-drain", False)
    u = t + 1500
    c.dies(5, u, u + 3000)
    c.node(5, u, u + 3000, "node-down")
    j.exit(u + 50, 134, first=0)
    j.places[5].exits = j.places[5].exits[:-1]
    j.move(5, 9, u + 345, u + 350)
    j.says(u, u + 800, "node-down")


@vignette(
    "one rank takes more memory than it asked for every five hours; all start again", late=True
)
def _(c):
    j = c.job("leak", range(6), "volcano")
    for h in (6, 11, 16, 21):
        t = c.at(h)
        for slot, pod in j.places.items():
            pod.exits.append(
                (
                    t + (slot != 3) * 20,
                    t + 40,
                    137 if slot == 3 else 1,
                    "OOMKilled" if slot == 3 else "Error",
                )
            )
        j.says(t, t + 400, "oom-killed", False)


@vignette(
    "a kubelet comes and goes three times within an hour, then the host is away for half an hour and boots anew",
    late=True,
    scrape=30,
)
def _(c):
    j = c.job("dying", range(7))
    t = c.at(23)
    for k in range(3):
        c.not_ready[c.nodes[3]].append((t + 1000 * k, t + 1000 * k + 140))
        c.node(3, t + 1000 * k, t + 1000 * k + 140, "flap", False)
    u = t + 3600
    c.dies(3, u, u + 1900)
    c.node(3, u, u + 1900, "node-down")
    j.exit(u + 45, 134, first=0)
    j.places[3].exits = []
    j.move(3, 9, u + 345, u + 352)
    j.says(u, u + 800, "node-down")


@vignette(
    "a job is preempted for four hours; one of its old hosts dies meanwhile under the other job",
    late=True,
)
def _(c):
    j = c.job("low", range(6), "jobset")
    t = c.at(12)
    for pod in j.places.values():
        pod.end, pod.disruption, pod.phase = t, "PreemptionByScheduler", "Failed"
    other = c.job("high", range(6), "jobset", t + 40)
    u = t + 2 * HOUR
    c.dies(4, u, u + 3000)
    c.node(4, u, u + 3000, "node-down")
    other.again(u + 60, wait=300, moved={4: 8})
    other.says(u, u + 800, "node-down")
    other.stops(t + 4 * HOUR - 100)
    j.make(dict(enumerate(range(6))), t + 4 * HOUR)
    j.says(t, t + 4 * HOUR + 400, "preemption", False)


@vignette(
    "a GPU is off the bus and nobody looks: the job starts in place and dies three times, then a person moves the pod",
    late=True,
)
def _(c):
    j = c.job("stuck", range(8))
    t = c.at(18)
    c.xid(6, t, 79, until=t + 3 * HOUR)
    for k in range(3):
        j.exit(t + 10 + 1560 * k, (1, 134), first=6)
        j.says(t + 10 + 1560 * k, t + 400 + 1560 * k, "gpu-lost")
    u = t + 5400
    c.cordon(6, u, t + 3 * HOUR)
    j.exit(u + 80, 143, first=0)
    j.places[6].exits = j.places[6].exits[:-1]
    j.move(6, 9, u + 70, u + 85)
    j.says(u + 70, u + 500, "planned-drain", False)
    c.node(6, t, t + 3 * HOUR, "gpu-lost")


@vignette(
    "one pod of a Volcano job fails by SIGSEGV and all are made anew under their names", late=True
)
def _(c):
    j = c.job("segv", range(8), "volcano")
    t = c.at(33)
    j.again(t, wait=25)
    j.says(t, t + 500, "process-crash")


@vignette(
    "a machine that is lent is gone without a word: no notice, no cordon, its object vanishes within a minute",
    late=True,
    nodes=11,
)
def _(c):
    j = c.job("lent", range(8), "jobset")
    t, name = c.at(15), c.nodes[5]
    c.lives[name] = [(BEGIN, t + 50)]
    c.dark[name].append((t, END))
    c.node(5, t, t + 50, "node-lost")
    j.again(t + 55, wait=30, moved={5: 9})
    j.says(t, t + 600, "node-lost")


@vignette(
    "a host dies and there is no spare: the new pod waits for six hours until it is mended",
    late=True,
    nodes=8,
)
def _(c):
    j = c.job("wait", range(8), "jobset")
    t = c.at(10)
    c.dies(2, t, t + 6 * HOUR)
    c.node(2, t, t + 6 * HOUR, "node-down")
    for pod in j.places.values():
        pod.end, pod.phase = t + 60, "Failed"
    j.attempt += 1
    j.make(dict(enumerate(range(8))), t + 90)
    for slot, pod in j.places.items():
        pod.started = t + 120 if slot != 2 else t + 6 * HOUR + 60
    for slot, pod in j.places.items():
        if slot != 2:
            for k in range(11):
                pod.exits.append(
                    (t + 1920 * (k + 1) + slot, t + 1920 * (k + 1) + slot + 12, 1, "Error")
                )
    j.says(t, t + 6 * HOUR + 500, "node-down")


@vignette("two hosts of one job die twenty-two minutes apart", late=True, nodes=12)
def _(c):
    j = c.job("pair", range(8), "lws")
    t = c.at(29)
    for k, n in enumerate((1, 6)):
        a = t + 1320 * k
        c.dies(n, a, a + 5000)
        c.node(n, a, a + 5000, "node-down")
        j.exit(a + 40, 134, first=0)
        j.places[n].exits = j.places[n].exits[:-1]
        j.move(n, 9 + k, a + 345, a + 350)
        j.says(a, a + 800, "node-down")


@vignette(
    "a double-bit error, and who is on call boots the host four minutes later without a cordon",
    late=True,
)
def _(c):
    j = c.job("dbe", range(8), "volcano")
    t = c.at(21)
    c.xid(0, t, 48, until=t + 300)
    j.exit(t + 8, (1, 134), first=0)
    c.dies(0, t + 300, t + 700)
    c.node(0, t, t + 700, "gpu-fatal")
    j.exit(t + 330, 134, first=1)
    j.places[0].exits = j.places[0].exits[:-1]
    j.places[0].exits.append((t + 720, t + 760, 255, "Unknown"))
    j.says(t, t + 1100, "gpu-fatal")


@vignette(
    "a user deletes one pod by hand, for its logs were strange; the others time out and start again",
    late=True,
)
def _(c):
    j = c.job("hand", range(8))
    t = c.at(26)
    j.move(3, 3, t, t + 5)
    j.exit(t + 20, 1, first=0)
    j.places[3].exits = []
    j.says(t, t + 500, "eviction", False)


@vignette(
    "the control plane loses all nodes for eight minutes, and one host really dies meanwhile and stays away for an hour",
    late=True,
    nodes=12,
)
def _(c):
    j = c.job("both", range(8), "jobset")
    t = c.at(24)
    for n in range(12):
        if n != 4:
            c.not_ready[c.nodes[n]].append((t + n, t + 490))
            c.node(n, t, t + 490, "control-plane", False)
    c.not_ready[c.nodes[4]].append((t + 60, t + 3600))
    c.dark[c.nodes[4]].append((t + 30, t + 3550))
    c.boots[c.nodes[4]].append(t + 3530)
    c.node(4, t + 30, t + 3600, "node-down")
    j.again(t + 520, wait=30, moved={4: 9})
    j.says(t + 30, t + 1000, "node-down")


@vignette(
    "nothing is scraped for two hours; a host dies within, the job is moved, and all is well when samples come again",
    late=True,
)
def _(c):
    j = c.job("blind", range(8), "jobset")
    t = c.at(19)
    c.gaps.append((t, t + 2 * HOUR))
    c.boots[c.nodes[2]].append(t + 2000)
    c.node(2, t + 1500, t + 2050, "reboot")
    j.again(t + 1560, wait=40, moved={2: 8})
    j.says(t + 1500, t + 2200, "reboot")


# ---------------------------------------------------------------- written with the rule that it tries


@vignette(
    "a disk fills, the kubelet evicts a pod, and its JobSet makes all anew within a minute; no sample has the reason",
    late=True,
    scrape=60,
)
def _(c):
    j = c.job("logs", range(8), "jobset")
    for n, h in ((2, 9), (5, 27.3)):
        t = c.at(h)
        parts = c.bools([(t - 20, t + 340)])
        c.conditions.append((c.nodes[n], "DiskPressure", parts))
        j.places[n].end = t
        for pod in j.places.values():
            pod.end = min(pod.end, t + 9)
        j.attempt += 1
        j.make(dict(enumerate(range(8))), t + 25)
        j.says(t, t + 500, "eviction", False)

"""Traps of the second generator: what happens in clusters of GPUs and is easily misread, with its
truth.

Each lot was written, truths included, before it was looked at. `contested` says why a truth can be
doubted: such incidents are neither found nor false, but where they are asked for.
"""

from site_histories import BEGIN, END, HOUR, NCCL, TOLERATED, Site

TRAPS = []


def trap(note, **more):
    def keep(function):
        def make(number):
            site = Site(f"s{number:02d}", note, **more)
            function(site)
            return site

        TRAPS.append(make)
        return function

    return keep


def host_dies(s, j, n, t, back, spare, cause="node-down", contested=""):
    """A host dies under a job, whose controller brings the pod to a spare."""
    s.dies(n, t, back)
    s.node(n, t, back, cause)
    if j.kind in ("jobset", "volcano"):
        slot = next(slot for slot, pod in j.pods.items() if pod.n == n)
        j.anew(t + TOLERATED + s.soon(42, 60), moved={n: spare}, first=slot)
        j.says(t, t + TOLERATED + 500, cause, contested=contested)
        return
    slot = next(slot for slot, pod in j.pods.items() if pod.n == n)
    j.moves(slot, spare, t + TOLERATED + s.soon(42, 60))
    for other, pod in j.pods.items():
        if other != slot:
            pod.again(t + NCCL + s.soon(0, 12), 134)
    j.says(t, t + NCCL + 300, cause, contested=contested)


# ---------------------------------------------------------------- starts that take long, or fail


@trap(
    "eight pods pull an image of 40 GB from a registry that throttles: they wait for half an hour and more"
)
def _(s):
    s.job("steady", range(3), "pytorch")
    j = s.job("big-image", range(3, 11), start=s.at(9))
    for slot, pod in j.pods.items():
        pod.never_runs()
        pod.runs(s.at(9) + 1500 + 180 * slot)


@trap(
    "a host dies; its pod has a place after six minutes and its volume after fifty, meanwhile the others' rendezvous runs out twice"
)
def _(s):
    j = s.job("rwo", range(8), "pytorch")
    t = s.at(21.3)
    s.dies(5, t, t + 3 * HOUR)
    s.node(5, t, t + 3 * HOUR, "node-down")
    j.moves(5, 9, t + 350, pulls=3000)
    for slot, pod in j.pods.items():
        if slot != 5:
            pod.again(t + NCCL + s.soon(0, 9), 134)
            pod.again(t + NCCL + 1900 + s.soon(0, 9), 1)
    j.says(t, t + 3900, "node-down")


@trap(
    "names are not resolved for a quarter of an hour: two jobs that begin just then fail at start, a third trains on"
)
def _(s):
    s.job("calm", range(4), "jobset")
    t = s.at(16)
    for name, nodes, team in (("first", range(4, 7), "vision"), ("second", range(7, 10), "speech")):
        j = s.job(name, nodes, "pytorch", start=t + s.soon(0, 60), namespace=team)
        at = t + 100
        for _ in range(4):
            for pod in j.pods.values():
                at = max(at, pod.again(at + s.soon(0, 4), 1))
            at += 65
        j.says(
            t, at, "transient", contested="they had not trained yet, so nothing says who was wrong"
        )


@trap(
    "an admission error: a GPU is off the bus, and six new pods on the node are refused within two minutes until it is cordoned"
)
def _(s):
    j = s.job("refused", range(8), "volcano")
    t = s.at(27.2)
    s.xid(2, 1, t, 79)
    s.offers(2, t + 30, 7)
    j.anew(t + 6, first=2)
    for k in range(5):
        j.anew(t + 60 + 22 * k, first=2, wait=4, reason="UnexpectedAdmissionError")
    s.cordon(2, t + 190, t + 5 * HOUR)
    j.anew(t + 195, first=2, moved={2: 8})
    s.offers(2, t + 5 * HOUR - 900, 8)
    s.xid(2, 1, t + 5 * HOUR - 900, 0)
    s.node(2, t, t + 5 * HOUR, "gpu-lost")
    j.says(t, t + 700, "gpu-lost")


@trap(
    "a pod on a host that died stays `Terminating` until the host is back after fifty minutes; only then it is made anew"
)
def _(s):
    j = s.job("stuck", range(6), "lws")
    t = s.at(12.7)
    s.dies(3, t, t + 3000)
    s.node(3, t, t + 3000, "node-down")
    for slot, pod in j.pods.items():
        if slot != 3:
            at = t + NCCL
            for _ in range(2):
                at = pod.again(at + s.soon(0, 8), 134) + 1200
    j.moves(3, 3, t + 3015)
    j.says(t, t + 3500, "node-down")


@trap(
    "a host dies, and the checkpoint that is read then is broken: three starts fail at loading, then the user takes an older one"
)
def _(s):
    j = s.job("broken-ckpt", range(7), "jobset")
    t = s.at(30.1)
    s.dies(1, t, t + 5000)
    s.node(1, t, t + 5000, "node-down")
    j.anew(t + 352, moved={1: 8})
    at = t + 352
    for _ in range(3):
        at += 220
        j.anew(at)
    j.says(t, at + 60, "node-down")
    j.attempt = -1
    j.deleted(at + 900)
    j.attempt = 0
    j.place(dict(enumerate([0, 8, 2, 3, 4, 5, 6])), at + 1000)


# ---------------------------------------------------------------- who makes room


@trap(
    "Kueue preempts a JobSet by priority and puts it back into its queue; three hours later it goes on elsewhere",
    nodes=14,
)
def _(s):
    j = s.job("queued", range(8))
    t = s.at(18.4)
    pods = list(j.pods.values())
    for pod in pods:
        pod.disrupted(t, "PreemptionByKueue")
    j.deleted(t + 5)
    j.says(t, t + 3 * HOUR, "preemption", False)
    other = s.job("prio", range(7), start=t + 50, namespace="prod")
    other.done(t + 3.2 * HOUR)
    j.place(dict(enumerate(range(6, 14))), t + 3.3 * HOUR)


@trap(
    "a pod writes more to its disk than it asked for and is evicted; Volcano starts the whole job anew"
)
def _(s):
    j = s.job("spill", range(6), "volcano")
    t = s.at(13.9)
    j.anew(t, reason="Evicted", first=4)
    j.says(t, t + 400, "eviction", False)


@trap(
    "spot machines are taken back with two minutes of notice, three within an hour; others of unlike names come",
    nodes=14,
)
def _(s):
    j = s.job("spot", range(8), "pytorch")
    for k, n in enumerate((2, 5, 6)):
        t = s.at(24.2) + 1300 * k
        s.taint(n, t, t + 130, "cloud.google.com/impending-node-termination", "NoExecute")
        s.deleted(n, t + 125)
        s.node(n, t, t + 125, "spot", contested="a spot reclaim is nobody's fault")
        slot = next(slot for slot, pod in j.pods.items() if pod.n == n)
        j.moves(slot, 9 + k, t + 8)
        for other, pod in j.pods.items():
            if other != slot:
                pod.again(t + 20 + s.soon(0, 9), 1)
        j.says(t, t + 700, "spot", contested="a spot reclaim is nobody's fault")


@trap(
    "the descheduler evicts one pod of a gang for balance; nothing is cordoned, the others start again"
)
def _(s):
    j = s.job("balance", range(7), "pytorch")
    t = s.at(33.3)
    j.pods[3].disrupted(t, "EvictionByEvictionAPI")
    j.moves(3, 9, t + 25)
    for slot, pod in j.pods.items():
        if slot != 3:
            pod.again(t + 30 + s.soon(0, 9), 1)
    j.says(t, t + 500, "planned-drain", False)


@trap(
    "a host dies under Kueue: the whole job is evicted after five minutes and waits two hours until the host is mended",
    nodes=8,
)
def _(s):
    j = s.job("no-spare", range(8))
    t = s.at(15.8)
    s.dies(6, t, t + 7000)
    s.node(6, t, t + 7000, "node-down")
    j.deleted(t + 360)
    j.place(dict(enumerate(range(8))), t + 7030)
    j.says(t, t + 7300, "node-down")


@trap(
    "idle nodes are taken away by the autoscaler: candidates, then to be deleted, then gone; four come again at night",
    nodes=14,
)
def _(s):
    s.job("day", range(8), "pytorch")
    for n in range(9, 13):
        t = s.at(11) + 240 * n
        s.taint(n, t, t + 700, "DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")
        s.taint(n, t + 600, t + 720, "ToBeDeletedByClusterAutoscaler")
        s.deleted(n, t + 720, s.at(26) + 60 * n, boot=s.at(26) + 60 * n - 90)


# ---------------------------------------------------------------- what somebody plans


@trap(
    "a driver's DaemonSet is rolled: cordon, eviction, GPUs not offered for six minutes, uncordon, no reboot; the job starts anew each time"
)
def _(s):
    j = s.job("rolled", range(8))
    for k in range(8):
        t = s.at(10) + 2400 * k
        s.cordon(k, t, t + 700)
        j.pods[k].disrupted(t + 12, "EvictionByEvictionAPI")
        j.anew(t + 20, first=k, moved={k: 8 + k % 2})
        j.says(t + 20, t + 500, "planned-drain", False)
        s.offers(k, t + 120, 0)
        s.offers(k, t + 480, 8)
        s.node(k, t, t + 700, "planned-drain", False)


@trap(
    "nothing is scraped for four hours; a node that was cordoned before it reboots within and is uncordoned after"
)
def _(s):
    s.job("elsewhere", range(6), "lws")
    t = s.at(22)
    s.cordon(8, t - 2000, t + 5 * HOUR)
    s.nothing_scraped(t, t + 4 * HOUR)
    s.dies(8, t + HOUR, t + HOUR + 500)
    s.node(8, t - 2000, t + 5 * HOUR, "planned-drain", False)


@trap(
    "a row remap is pending (XID 63), work goes on, and the next day the node is drained and booted for it"
)
def _(s):
    j = s.job("remap", range(7), "jobset")
    t, u = s.at(9.4), s.at(31.2)
    s.xid(4, 0, t, 63)
    s.node(4, t, t + 60, "xid-warning", False)
    s.cordon(4, u, u + 3000)
    j.pods[4].disrupted(u + 40, "EvictionByEvictionAPI")
    j.anew(u + 45, first=4, moved={4: 8})
    s.dies(4, u + 900, u + 1400)
    s.node(4, u, u + 3000, "planned-drain", False)
    j.says(u + 40, u + 600, "planned-drain", False)


@trap(
    "four hosts install updates by themselves before dawn and boot anew, each at its own minute, with no cordon"
)
def _(s):
    j = s.job("patched", range(8), "pytorch")
    for k, n in enumerate((0, 3, 4, 7)):
        t = s.at(28.4) + 1900 * k + s.soon(0, 300)
        s.dies(n, t, t + 260)
        s.node(n, t, t + 260, "reboot")
        for slot, pod in j.pods.items():
            pod.again(t + (262 if slot == n else s.soon(30, 45)), 255 if slot == n else 1)
        j.says(t, t + 600, "reboot")


# ---------------------------------------------------------------- whose fault an exit is


@trap(
    "collectives time out on a slow link that nobody sees, three times at odd hours; the JobSet goes on on the same nodes"
)
def _(s):
    j = s.job("slow-nic", range(8))
    for h in (7.31, 18.4, 23.44):
        t = s.at(h)
        j.anew(t, first=s.r.choice(range(8)))
        j.says(t - NCCL, t + 400, "nccl-timeout")


@trap(
    "a bug at one batch: a JobSet with three restarts fails twelve minutes after each start and is then given up"
)
def _(s):
    j = s.job("limit3", range(5), start=s.at(8))
    t = s.at(8) + 20
    for _ in range(3):
        t += 720 + s.soon(0, 20)
        j.anew(t)
        j.says(t, t + 100, "user-crash-loop", False)
        t += 45
    t += 730
    for pod in j.pods.values():
        pod.fails(t + s.soon(0, 3))


@trap(
    "a segmentation fault in one rank, each time another one, three times in thirty hours; all start again in place"
)
def _(s):
    j = s.job("segv", range(8), "pytorch")
    for h, slot in ((6.2, 5), (21.7, 1), (35.9, 6)):
        j.collapse(s.at(h), first=slot, code=139, others=134, spread=20)
        j.says(s.at(h), s.at(h) + 500, "process-crash")


@trap(
    "a data loader leaks the host's memory: rank 0 is killed (137, Error) six hours after each start, five times"
)
def _(s):
    j = s.job("leak", range(6), "pytorch", start=s.at(1))
    t = s.at(1) + 20
    for _ in range(5):
        t += 6 * HOUR + s.soon(-70, 70)
        j.collapse(t, first=0, code=137, others=134)
        j.says(t, t + 500, "oom-killed", False)
        t += 30


@trap(
    "the storage of checkpoints is full: jobs of two teams fail at each of their saves until somebody makes room, then both go on unchanged"
)
def _(s):
    t = s.at(20)
    for name, nodes, team, every, times in (
        ("full-a", range(5), "alpha", 1800, 4),
        ("full-b", range(5, 10), "beta", 3000, 3),
    ):
        j = s.job(name, nodes, "pytorch", namespace=team)
        at = t + s.soon(0, 900)
        for _ in range(times):
            j.collapse(at, spread=6)
            j.says(at, at + 300, "transient", contested="by its looks a bug of each team's code")
            at += every + 70


@trap(
    "a token that is valid for twelve hours: all ranks exit 1 twelve hours after each start, three times"
)
def _(s):
    j = s.job("token", range(8), "pytorch", start=s.at(2))
    t = s.at(2) + 15
    for _ in range(3):
        t += 12 * HOUR + s.soon(0, 25)
        j.collapse(t, spread=30)
        j.says(t, t + 400, "user-crash", False)
        t += 14


@trap(
    "CUDA is out of memory at the same step after each start: five times within half an hour, then the user makes batches smaller"
)
def _(s):
    j = s.job("oom-step", range(4), "pytorch", start=s.at(14))
    t = s.at(14) + 20
    for _ in range(5):
        t += 272 + s.soon(0, 6)
        j.collapse(t, spread=5)
        j.says(t, t + 60, "user-crash-loop", False)
        t += max(pod.started for pod in j.pods.values()) - t
    j.deleted(t + 60)
    j.place(dict(enumerate(range(4))), t + 1500)


@trap(
    "three jobs of three teams abort within forty seconds when a leaf switch stumbles; no node is away, all go on in place",
    nodes=13,
)
def _(s):
    t = s.at(26.6)
    for k, (nodes, team) in enumerate(((range(4), "a"), (range(4, 8), "b"), (range(8, 12), "c"))):
        j = s.job(f"leaf-{team}", nodes, "pytorch", namespace=f"team-{team}")
        j.collapse(t + 14 * k, code=134, others=134, spread=9)
        j.says(t - NCCL, t + 500, "nccl-timeout")


@trap(
    "a job stands still for seventy minutes without an end, then its user deletes the pods and the JobSet makes them anew",
    activity=True,
)
def _(s):
    j = s.job("hang", range(8))
    t = s.at(19.6)
    for n in range(8):
        of = dict(gpu="0", UUID=f"GPU-{s.name}-{n}-0", Hostname=s.hosts[n])
        for at, value in ((BEGIN - HOUR, 0.43), (t, 0.0), (t + 4400, 0.44)):
            s.tell(at, value, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", ("dcgm", n), **of)
    j.deleted(t + 4200)
    j.place(dict(enumerate(range(8))), t + 4235)
    j.says(t, t + 4400, "hang")


# ---------------------------------------------------------------- what users do


@trap(
    "an elastic job is made smaller by its user: two of eight pods go, torchrun goes on with six and no container ends"
)
def _(s):
    j = s.job("shrink", range(8), "pytorch")
    for slot in (6, 7):
        j.pods.pop(slot).vanishes(s.at(25) + slot)


@trap(
    "a host dies under an elastic job and there is no spare: it goes on with seven of eight until the host is back",
    nodes=8,
)
def _(s):
    j = s.job("elastic", range(8), "pytorch")
    t = s.at(17.2)
    s.dies(6, t, t + 4 * HOUR)
    s.node(6, t, t + 4 * HOUR, "node-down")
    j.moves(6, 6, t + 352, t + 4 * HOUR + 20)
    j.says(t, t + 700, "node-down", contested="that it goes on with seven, no series tells")


@trap(
    "a user deletes his job in the middle of the day and begins another one of another name in the evening"
)
def _(s):
    s.job("wrong-lr", range(8), "pytorch").deleted(s.at(12.5))
    s.job("right-lr", range(8), "pytorch", start=s.at(20))


@trap(
    "a user applies the same PyTorchJob with a new image three times a day: all pods are deleted and made again under their names"
)
def _(s):
    j = s.job("iterate", range(6), "pytorch")
    for h in (9.1, 13.6, 16.2):
        j.deleted(s.at(h))
        j.place(dict(enumerate(range(6))), s.at(h) + s.soon(60, 140))
        j.says(s.at(h), s.at(h) + 300, "resubmission", False)


@trap("an evaluation of one name runs every three hours for forty minutes and is done")
def _(s):
    s.job("train", range(5), "lws")
    for k in range(12):
        j = s.job("eval", range(6, 8), start=s.at(4 * k + 1), namespace="eval")
        j.done(s.at(4 * k + 1) + 2400, kept=300)


# ---------------------------------------------------------------- hosts and their GPUs


@trap(
    "a provider mends a node: not ready for ten minutes, its object deleted, and made again under its name four minutes later"
)
def _(s):
    j = s.job("repair", range(8))
    t = s.at(29.5)
    s.away(4, t + 45, t + 900)
    for what in ("host", "dcgm"):
        s.silent[what, 4].append((t, t + 870))
    s.deleted(4, t + 640, t + 880, boot=t + 800)
    s.node(4, t, t + 900, "node-down")
    j.anew(t + 350, first=4, moved={4: 9})
    j.says(t, t + 900, "node-down")


@trap(
    "a link comes and goes: twelve times in two hours a node is away for two minutes, collectives time out twice, then it is drained"
)
def _(s):
    j = s.job("flappy", range(8), "jobset")
    t = s.at(23.1)
    why = "each time it is away is short; one may call all of them one fault of a link"
    for k in range(12):
        a = t + 600 * k
        s.away(2, a + 45, a + 45 + s.soon(60, 110))
        for what in ("host", "dcgm"):
            s.silent[what, 2].append((a, a + 120))
    for k in (2, 9):
        j.anew(t + 600 * k + NCCL - 30)
        j.says(t + 600 * k - 60, t + 600 * k + 1000, "nccl-timeout")
    u = t + 7500
    s.cordon(2, u, u + 4 * HOUR)
    j.pods[2].disrupted(u + 30, "EvictionByEvictionAPI")
    j.anew(u + 35, first=2, moved={2: 9})
    j.says(u + 30, u + 600, "planned-drain", False)
    s.node(2, t, u + 4 * HOUR, "nic", contested=why)


@trap(
    "a GPU's firmware does not answer (XID 119), its exporter hangs with it, and who is on call boots the host after twenty minutes"
)
def _(s):
    j = s.job("gsp", range(8), "pytorch")
    t = s.at(32.8)
    s.xid(5, 1, t, 119)
    s.silent["dcgm", 5].append((t + 3 * s.scrape, t + 1500))
    for slot, pod in j.pods.items():
        if slot != 5:
            pod.again(t + NCCL + s.soon(0, 12), 134)
    s.dies(5, t + 1200, t + 1560)
    for slot, pod in j.pods.items():
        pod.again(t + (1565 if slot == 5 else 1240 + s.soon(0, 12)), 255 if slot == 5 else 1)
    s.node(5, t, t + 1560, "gpu-fatal")
    j.says(t, t + 2000, "gpu-fatal")


@trap("an agent tells of heat on two nodes for five hours; clocks are lower, the job goes on")
def _(s):
    s.job("warm", range(8), "lws")
    for n in range(11):
        s.condition(n, BEGIN - HOUR, 0, "GPUThermalThrottling")
    for n in (1, 6):
        s.condition(n, s.at(15), 1, "GPUThermalThrottling")
        s.condition(n, s.at(20), 0, "GPUThermalThrottling")


@trap("a clock is set an hour ahead, on a host that was booted under a cordon the day before")
def _(s):
    s.job("clock", range(6), "pytorch")
    t = s.at(4)
    s.cordon(8, t, t + 2400)
    s.dies(8, t + 600, t + 1000)
    s.node(8, t, t + 2400, "planned-drain", False)
    boots = s.lines["node_boot_time_seconds", ("host", 8), (("nodename", s.hosts[8]),)]
    s.boots(8, boots[-1][1] + 3600, s.at(24))


@trap(
    "a container runtime is slow: a kubelet is not ready for seven minutes, and its pod trains on",
    scrape=30,
)
def _(s):
    s.job("pleg", range(8), "jobset")
    t = s.at(14.4)
    s.away(3, t, t + 430)
    s.node(3, t, t + 430, "kubelet-down", contested="nothing on it noticed")


# ---------------------------------------------------------------- who watches


@trap(
    "kube-state-metrics starts anew and is silent for seven minutes, in which one job is done and another is deleted by its user"
)
def _(s):
    a, b = s.job("ends", range(4)), s.job("gone", range(4, 8), "pytorch")
    t = s.at(21)
    s.nothing_scraped(t, t + 430, "ksm")
    a.done(t + 60, kept=100)
    b.deleted(t + 200)


@trap(
    "the control plane moves: all nodes are unknown for seventy seconds, thrice in a night; pods go on"
)
def _(s):
    s.job("moved", range(9), "volcano")
    for h in (25, 26.3, 29):
        for n in range(11):
            s.away(n, s.at(h) + n % 4, s.at(h) + 70 + n % 5)
            s.node(n, s.at(h), s.at(h) + 75, "flap", False)


@trap("exporters of one host hang for an hour and a half; kubelet and job are well")
def _(s):
    s.job("quiet", range(8), "jobset")
    for what in ("host", "dcgm"):
        s.silent[what, 6].append((s.at(18.2), s.at(19.7)))


@trap(
    "a host dies in the first hour that is seen, and another in the last; both under one job",
    nodes=12,
)
def _(s):
    j = s.job("edges", range(8), "pytorch")
    host_dies(s, j, 1, BEGIN + 1500, BEGIN + 6000, 9)
    host_dies(s, j, 6, END - 2400, END - 300, 10)

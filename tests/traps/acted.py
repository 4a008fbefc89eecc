"""Traps of the second generator: what happens in clusters of GPUs and is easily misread, with its truth.

All were written, truths included, before any was looked at. `contested` says why a truth can be doubted: such incidents are neither
found nor false, but where they are asked for.
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


# ---------------------------------------------------------------- a second lot, written after the rules were mended


@trap(
    "a preemptible job of low priority is preempted five times a day by Volcano and comes back each time after an hour"
)
def _(s):
    j = s.job("low", range(6), "volcano")
    for h in (5, 9.2, 14, 20.4, 31):
        t = s.at(h)
        j.pods[1].disrupted(t, "PreemptionByScheduler")
        j.deleted(t + 3)
        j.says(t, t + 4000, "preemption", False)
        j.place(dict(enumerate(range(6))), t + s.soon(3000, 4200))


@trap(
    "a rank is killed by its liveness probe every time a save takes long: 137 at odd hours, four times, other ranks abort"
)
def _(s):
    j = s.job("probe", range(8), "pytorch")
    why = "a probe that is too strict is its user's; by its looks a process was killed from outside"
    for h in (7.7, 16.1, 21.9, 38.6):
        j.collapse(s.at(h), first=0, code=137, others=134, spread=14)
        j.says(s.at(h), s.at(h) + 400, "process-crash", contested=why)


@trap(
    "a license server is away: containers of one job exit 1 each minute for twenty minutes, then it trains on from where it was"
)
def _(s):
    j = s.job("license", range(6), "pytorch")
    t = s.at(18.8)
    why = "a loop of short starts that mends itself; nobody but its user knows what was away"
    at = t
    for _ in range(6):
        for pod in j.pods.values():
            pod.again(at + s.soon(0, 3), 1)
        at = max(pod.started for pod in j.pods.values()) + 40
    j.says(t, at, "transient", contested=why)


@trap(
    "a user cancels at night and starts again in the morning under the same name, three days long; nothing fails"
)
def _(s):
    j = s.job("office", range(8), "jobset")
    for day in range(2):
        t = s.at(12 + 24 * day)
        j.deleted(t)
        j.says(t, t + 12 * HOUR, "resubmission", False)
        j.attempt = 0
        if day == 0:
            j.place(dict(enumerate(range(8))), t + 12 * HOUR)


@trap(
    "two ranks of a job die of an illegal instruction (132) on one host, three times within a day, then the pod is moved by hand and it lasts"
)
def _(s):
    j = s.job("sigill", [0, 1, 2, 2, 3, 4], "pytorch")
    for h in (6.1, 13.8, 19.9):
        t = s.at(h)
        j.collapse(t, first=2, code=132, others=134, spread=10)
        j.says(t, t + 500, "process-crash")
    u = s.at(22)
    for slot in (2, 3):
        j.moves(slot, 7, u)
    for slot in (0, 1, 4, 5):
        j.pods[slot].again(u + 20 + s.soon(0, 5), 1)
    j.says(u, u + 600, "eviction", False)


@trap(
    "a bug that needs one and the same batch: exit 1 after 74 minutes, six times, and between two of them a host dies",
    nodes=12,
)
def _(s):
    j = s.job("batch", range(8), "pytorch", start=s.at(6))
    t = s.at(6) + 20
    for k in range(6):
        t += 4440 + s.soon(0, 25)
        j.collapse(t, first=3, spread=7)
        j.says(t, t + 200, "user-crash-loop", False)
        t += 14
        if k == 3:
            u = t + 1500
            host_dies(s, j, 5, u, u + 7000, 9)
            t = u + NCCL + 30


@trap(
    "a data loader stops by itself at the end of each epoch: all ranks exit 0 nine hours after each start and are started again"
)
def _(s):
    j = s.job("epoch", range(6), "pytorch", start=s.at(0.5))
    t = s.at(0.5) + 15
    for _ in range(5):
        t += 9 * HOUR + s.soon(0, 300)
        for pod in j.pods.values():
            pod.again(t + s.soon(0, 9), 0, "Completed")
        t += 14


@trap(
    "one host's PCIe link is poor: NCCL's watchdog ends the job at odd hours five times, and each time the JobSet goes on",
    nodes=12,
)
def _(s):
    j = s.job("pcie", range(10))
    for h in (3.3, 11.9, 17.1, 30.5, 44.2):
        t = s.at(h)
        j.anew(t, first=4)
        j.says(t - NCCL, t + 400, "nccl-timeout")


@trap(
    "a kernel panics on a host and it is up again within two minutes, with crash dump; its pods start again in place",
    scrape=30,
)
def _(s):
    j = s.job("panic", range(8), "pytorch")
    t = s.at(20.2)
    s.dies(3, t, t + 150)
    s.node(3, t, t + 150, "reboot")
    for slot, pod in j.pods.items():
        pod.again(t + (152 if slot == 3 else s.soon(5, 30)), 255 if slot == 3 else 134)
    j.says(t, t + 500, "reboot")


@trap(
    "a node is cordoned for a week for its fan, its job trains on; on the third day somebody drains it after a save"
)
def _(s):
    j = s.job("fan", range(7), "jobset")
    s.cordon(2, s.at(4), END)
    t = s.at(33)
    j.pods[2].disrupted(t, "EvictionByEvictionAPI")
    j.anew(t + 5, first=2, moved={2: 9})
    j.says(t, t + 500, "planned-drain", False)
    s.node(2, s.at(4), END, "planned-drain", False)


@trap(
    "GPU memory is full of another process on one host: a job fails at start there three times, and its user excludes the node",
    nodes=12,
)
def _(s):
    j = s.job("zombie", range(6), "jobset", start=s.at(15))
    t = s.at(15)
    why = "a process that was left behind fails the program of another; nothing tells of it"
    for k in range(3):
        t += 95
        j.says(t, t + 60, "process-crash", contested=why)
        if k < 2:
            j.anew(t, first=4)
            t += 40
    j.deleted(t)
    j.attempt = 0
    j.place(dict(enumerate([0, 1, 2, 3, 6, 5])), t + 900)


@trap(
    "the network of a rack is away for three minutes: its nodes stay ready in time, all collectives that cross it time out, two jobs",
    nodes=12,
)
def _(s):
    t = s.at(24.9)
    for name, nodes, kind, team in (
        ("cross-a", range(6), "jobset", "a"), ("cross-b", range(6, 12), "pytorch", "b"),
    ):  # fmt: skip
        j = s.job(name, nodes, kind, namespace=f"team-{team}")
        if kind == "jobset":
            j.anew(t + NCCL + 5)
        else:
            j.collapse(t + NCCL + 12, code=134, others=134, spread=20)
        j.says(t, t + NCCL + 500, "nccl-timeout")


@trap(
    "a host loses power for two hours while its job is preempted; when it comes back all is well",
    nodes=12,
)
def _(s):
    j = s.job("lucky", range(8), "jobset")
    t = s.at(14.2)
    for pod in j.pods.values():
        pod.disrupted(t, "PreemptionByKueue")
    j.deleted(t + 4)
    j.says(t, t + 5 * HOUR, "preemption", False)
    s.job("winner", range(8), "pytorch", start=t + 45, namespace="prod").deleted(t + 1.1 * HOUR)
    u = t + 2 * HOUR
    s.dies(5, u, u + 7200)
    s.node(5, u, u + 7200, "node-down")
    j.place(dict(enumerate(range(8))), t + 5 * HOUR)


@trap(
    "XID 13 on one rank's GPU and exit 1 there, others abort; its user mends a kernel and starts again; once"
)
def _(s):
    j = s.job("kernel", range(5), "pytorch")
    t = s.at(17.7)
    s.xid(3, 0, t - 3, 13)
    s.node(3, t - 3, t, "user-xid", False)
    j.collapse(t, first=3, code=1, others=134, spread=9)
    j.says(t, t + 300, "user-crash", False)
    j.deleted(t + 1500)
    j.place(dict(enumerate(range(5))), t + 4000)


@trap(
    "a GPU has double-bit errors (XID 48), the agent cordons at once, the pod moves, and the node is back in an hour; twice on two nodes",
    nodes=12,
)
def _(s):
    j = s.job("dbe", range(8), "pytorch")
    for k, (n, h) in enumerate(((1, 9.5), (6, 36.4))):
        t = s.at(h)
        s.xid(n, k, t, 48)
        s.cordon(n, t + 25, t + HOUR)
        slot = next(slot for slot, pod in j.pods.items() if pod.n == n)
        j.moves(slot, 9 + k, t + 40)
        for other, pod in j.pods.items():
            if other != slot:
                pod.again(t + s.soon(5, 30), 134)
        s.xid(n, k, t + HOUR - 200, 0)
        s.node(n, t, t + HOUR, "gpu-fatal")
        j.says(t, t + 600, "gpu-fatal")


@trap(
    "etcd is slow: pods of a JobSet are made anew half an hour after one failed, though nodes were free"
)
def _(s):
    j = s.job("etcd", range(6), "jobset")
    t = s.at(26.3)
    j.anew(t, first=2, wait=1800)
    j.says(t, t + 2300, "process-crash")


@trap(
    "a controller is upgraded and makes every pod of two jobs anew without need; nothing failed, both within a minute",
    nodes=12,
)
def _(s):
    t = s.at(21.5)
    why = "who upgrades a controller interrupts; nobody but he knows"
    for name, nodes, team in (("up-a", range(5), "a"), ("up-b", range(5, 10), "b")):
        j = s.job(name, nodes, "volcano", namespace=f"team-{team}")
        j.deleted(t + s.soon(0, 20))
        j.place(dict(enumerate(nodes)), t + 60)
        j.says(t, t + 400, "resubmission", False, contested=why)


@trap(
    "a training that is done after each stage is a new job of another name, five stages in a row; one host dies in the fourth",
    nodes=12,
)
def _(s):
    for k in range(5):
        j = s.job(f"stage-{k}", range(8), ("jobset", "pytorch")[k % 2], start=s.at(9.5 * k + 0.5))
        if k == 3:
            host_dies(s, j, 2, s.at(33), s.at(34.5), 9)
        j.done(s.at(9.5 * k + 9), kept=600)


@trap(
    "two hosts die an hour apart, the second one is the spare that came for the first, and a third dies idle",
    nodes=13,
)
def _(s):
    j = s.job("unlucky", range(8), "jobset")
    t = s.at(28)
    host_dies(s, j, 3, t, t + 9000, 9)
    host_dies(s, j, 9, t + 3600, t + 12000, 10)
    s.dies(12, t + 5000, t + 6500)
    s.node(12, t + 5000, t + 6500, "node-down")


@trap(
    "a sidecar that copies logs runs out of memory every hour and is started again; training goes on"
)
def _(s):
    j = s.job("logs", range(6), "pytorch")
    pod = j.pods[2]
    box = dict(container="shipper", **pod.of)
    s.tell(pod.created, pod.created + 9, "kube_pod_container_state_started", **box)
    s.tell(pod.created, 0, "kube_pod_container_status_restarts_total", **box)
    last = "kube_pod_container_status_last_terminated"
    for k in range(40):
        t = s.at(2 + k) + s.soon(0, 600)
        s.tell(t, t + 12, "kube_pod_container_state_started", **box)
        s.tell(t + 12, k + 1, "kube_pod_container_status_restarts_total", **box)
        s.tell(t, t, f"{last}_timestamp", **box)
        s.tell(t, 137, f"{last}_exitcode", **box)
        s.tell(t, 1, f"{last}_reason", reason="OOMKilled", **box)


# ---------------------------------------------------------------- a third lot: machines that look like programs, and programs like machines


@trap(
    "a host's fabric is broken: a JobSet gives up fifteen minutes after each start, four times, then it is placed without that host and lasts",
    nodes=12,
)
def _(s):
    j = s.job("fabric", range(8), start=s.at(10))
    t = s.at(10) + 15
    for k in range(4):
        t += 900 + s.soon(0, 12)
        j.anew(t, first=1, moved={5: 9} if k == 3 else None)
        j.says(t - NCCL, t + 100, "nccl-timeout")
        t += 45


@trap(
    "a bug at one batch: a JobSet fails after nineteen minutes five times, each time on other nodes, then its user mends it",
    nodes=14,
)
def _(s):
    j = s.job("wander", range(6), start=s.at(12))
    t = s.at(12) + 15
    for k in range(5):
        t += 1140 + s.soon(0, 20)
        j.anew(t, first=k % 6, moved={n: (n + 5) % 14 for n in range(14)})
        j.says(t, t + 100, "user-crash-loop", False)
        t += 45
    j.deleted(t + 600)
    j.attempt = 0
    j.place(dict(enumerate(range(6))), t + 5000)


@trap(
    "a deadlock of two threads of the program at one batch: all ranks abort fifty minutes after each start, four times, then it is mended"
)
def _(s):
    j = s.job("deadlock", range(6), "pytorch", start=s.at(9))
    t = s.at(9) + 15
    for _ in range(4):
        t += 3000 + s.soon(0, 15)
        j.collapse(t, code=134, others=134, spread=6)
        j.says(t - NCCL, t + 100, "user-crash-loop", False)
        t += 14
    j.deleted(t + 1200)
    j.place(dict(enumerate(range(6))), t + 6000)


@trap(
    "a GPU computes wrongly and tells nothing: one rank dies of SIGSEGV six times at odd times, until its pod is moved; then it lasts",
    nodes=12,
)
def _(s):
    j = s.job("silent", range(8), "pytorch", start=s.at(6))
    t = s.at(6)
    for gap in (2100, 5200, 3100, 9200, 1500, 4100):
        t += gap
        j.collapse(t, first=4, code=139, others=134, spread=12)
        j.says(t, t + 400, "process-crash")
        t += 20
    u = t + 1300
    j.moves(4, 9, u)
    for slot, pod in j.pods.items():
        if slot != 4:
            pod.again(u + 15 + s.soon(0, 5), 143)
    j.says(u, u + 500, "eviction", False)


@trap(
    "the server of a shared file system boots: jobs of three teams exit 1 within a minute, fail at four starts, and all train on unchanged",
    nodes=13,
)
def _(s):
    t = s.at(22.3)
    for k, (nodes, team) in enumerate(((range(4), "a"), (range(4, 8), "b"), (range(8, 12), "c"))):
        j = s.job(f"nfs-{team}", nodes, "pytorch", namespace=f"team-{team}")
        at = t + 17 * k
        for _ in range(5):
            for pod in j.pods.values():
                pod.again(at + s.soon(0, 4), 1)
            at = max(pod.started for pod in j.pods.values()) + 50
        j.says(t + 17 * k, at, "transient")


@trap(
    "a host dies while the registry is away: the new pod waits for its image for forty minutes, the others give up twice",
    nodes=12,
)
def _(s):
    j = s.job("registry", range(8), "pytorch")
    t = s.at(25.4)
    s.dies(2, t, t + 9000)
    s.node(2, t, t + 9000, "node-down")
    j.moves(2, 9, t + 350, pulls=2500)
    for slot, pod in j.pods.items():
        if slot != 2:
            pod.again(t + NCCL + s.soon(0, 9), 134)
            pod.again(t + NCCL + 1810 + s.soon(0, 9), 1)
    j.says(t, t + 3200, "node-down")


@trap(
    "data of three shards are broken: exit 1 after odd times, three times within four hours, then its user takes another list and it lasts"
)
def _(s):
    j = s.job("shards", range(6), "pytorch", start=s.at(7))
    t = s.at(7)
    why = "three errors at odd times look as three faults would"
    for gap in (2500, 5100, 3900):
        t += gap
        j.collapse(t, spread=8)
        j.says(t, t + 300, "user-crash", False, contested=why)
        t += 20
    j.deleted(t + 900)
    j.place(dict(enumerate(range(6))), t + 3600)


@trap(
    "a daemon of the house eats one host's memory: the rank there is killed (137) at odd hours four times; the others abort",
    nodes=12,
)
def _(s):
    j = s.job("eaten", range(8), "pytorch")
    for h in (6.4, 11.2, 19.9, 31.7):
        t = s.at(h)
        j.collapse(t, first=6, code=137, others=134, spread=10)
        j.says(t, t + 400, "process-crash")

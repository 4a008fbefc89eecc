"""A second lot apart, written after the rules were mended for the first one, and before it
was asked.
"""

from site_histories import HOUR, NCCL, TOLERATED
from traps.acted import host_dies, trap
from traps.acted_apart import joins


@trap(
    "a host dies and there is no spare; an hour later the user starts the job again on seven nodes",
    nodes=8,
    stem="solo-",
    scrape=30,
)
def _(s):
    j = s.job("seven", range(8), "volcano")
    t = s.at(14.6)
    s.dies(3, t, t + 9 * HOUR)
    s.node(3, t, t + 9 * HOUR, "node-down")
    j.deleted(t + 345)
    j.place(dict(enumerate((0, 1, 2, 4, 5, 6, 7))), t + HOUR)
    j.says(t, t + HOUR + 400, "node-down")


@trap(
    "a bad merge: a tool deletes the jobs of three teams within seconds and makes them again twelve minutes later under their names",
    nodes=12,
    stem="git-",
    scrape=60,
)
def _(s):
    t = s.at(18.2)
    for k, kind in enumerate(("jobset", "pytorch", "volcano")):
        nodes = dict(enumerate(range(4 * k, 4 * k + 4)))
        j = s.job(f"merged-{k}", nodes.values(), kind, namespace=f"squad-{k}")
        j.deleted(t + 3 * k, grace=8)
        j.attempt = 0
        j.place(nodes, t + 720 + 5 * k)
        j.says(t, t + 1100, "resubmission", False)


@trap(
    "two jobs of one team fail at start again and again by a wrong setting; their user mends it, and applies both anew within a minute",
    nodes=10,
    stem="res-a100-",
    scrape=30,
)
def _(s):
    t = s.at(20)
    for k in range(2):
        j = s.job(
            f"wrong-{k}", range(5 * k, 5 * k + 5), "pytorch", start=t + 90 * k, namespace="vid"
        )
        at = t + 90 * k + 70
        for _ in range(6):
            for pod in j.pods.values():
                pod.again(at + s.soon(0, 3), 1)
            at = max(pod.started for pod in j.pods.values()) + 55
        j.says(t + 90 * k, at, "user-crash-loop", False)
        j.deleted(t + 3300 + 20 * k, grace=5)
        j.place(dict(enumerate(range(5 * k, 5 * k + 5))), t + 3340 + 20 * k)


@trap(
    "spot machines under Karpenter: the notice of two minutes, pods evicted through the API at once, the machine gone; another comes later",
    nodes=12,
    stem="spot.eu-",
    scrape=15,
)
def _(s):
    j = s.job("lent", range(6))
    for k, h in enumerate((8.8, 30.1)):
        t, n = s.at(h), 2 + k
        joins(s, 9 + k, t + 500)
        s.taint(n, t, t + 118, "karpenter.sh/disrupted")
        slot = next(slot for slot, pod in j.pods.items() if pod.n == n)
        j.pods[slot].disrupted(t + 5, "EvictionByEvictionAPI")
        j.anew(t + 8, first=slot, moved={n: 9 + k}, wait=560)
        s.deleted(n, t + 119)
        s.node(n, t, t + 119, "reclaimed")
        j.says(t, t + 900, "reclaimed")


@trap(
    "an elastic job goes on with seven of eight when a host dies, and with eight again when the host is back three hours later",
    nodes=8,
    stem="el-",
    scrape=30,
)
def _(s):
    j = s.job("breathes", range(8), "pytorch")
    t = s.at(16.9)
    s.dies(4, t, t + 3 * HOUR)
    s.node(4, t, t + 3 * HOUR, "node-down")
    j.pods.pop(4).vanishes(t + TOLERATED + 44)
    for pod in j.pods.values():
        pod.again(t + NCCL + s.soon(0, 9), 1)
    j.says(t, t + NCCL + 300, "node-down")
    u = t + 3 * HOUR + 200
    j.place({4: 4}, u)
    for slot, pod in j.pods.items():
        if slot != 4:
            pod.again(u + 40 + s.soon(0, 6), 1)
    j.says(u, u + 400, "grown", False, contested="that it grows, no series tells")


@trap(
    "a host shuts down in order for a new firmware without a cordon, its pod is ended by the kubelet, and it is back after a quarter of an hour",
    nodes=11,
    stem="fw-",
    scrape=15,
)
def _(s):
    j = s.job("firmware", range(8), "jobset")
    t = s.at(22.4)
    slot = next(slot for slot, pod in j.pods.items() if pod.n == 6)
    j.pods[slot].fails(t, "Terminated")
    s.dies(6, t + 20, t + 900)
    why = "somebody shut it down, and nobody says why"
    s.node(6, t, t + 900, "node-down", contested=why)
    j.anew(t + 55, first=slot, moved={6: 9}, reason="Terminated")
    j.says(t, t + 700, "node-down", contested=why)


@trap(
    "scrapes of five minutes: two reboots of three minutes under a job, a host that is away for an hour, and kubelets that flap",
    nodes=12,
    stem="slow-",
    scrape=300,
)
def _(s):
    j = s.job("coarse", range(9), "pytorch")
    for n, h in ((1, 7.3), (5, 19.8)):
        t = s.at(h)
        s.dies(n, t, t + 190)
        s.node(n, t, t + 190, "reboot")
        for pod in j.pods.values():
            pod.again(t + (192 if pod.n == n else s.soon(20, 40)), 255 if pod.n == n else 1)
        j.says(t, t + 600, "reboot")
    host_dies(s, j, 7, s.at(33.3), s.at(34.4), 10)
    for n, h in ((0, 12.1), (2, 12.2), (3, 40.7)):
        s.away(n, s.at(h), s.at(h) + 80)


@trap(
    "a host dies under a job whose new pod can never pull its image; its user finds it five hours later and takes the job away",
    nodes=10,
    stem="pull-",
    scrape=30,
)
def _(s):
    j = s.job("no-image", range(8), "jobset")
    t = s.at(21.7)
    s.dies(2, t, t + 7 * HOUR)
    s.node(2, t, t + 7 * HOUR, "node-down")
    j.anew(t + TOLERATED + 45, first=2, moved={2: 9})
    j.pods[2].never_runs()
    j.says(t, t + 5 * HOUR, "node-down")
    j.deleted(t + 5 * HOUR)


@trap(
    "an autoscaler takes a half-used node away: tainted for ten minutes, its small job evicted and placed elsewhere, then deleted",
    nodes=10,
    stem="ca-",
    scrape=30,
)
def _(s):
    s.job("large", range(7), "pytorch")
    j = s.job("small", [8], "jobset", namespace="notebooks")
    t = s.at(25.5)
    s.taint(8, t - 900, t, "DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")
    s.taint(8, t, t + 399, "ToBeDeletedByClusterAutoscaler")
    j.pods[0].disrupted(t + 20, "EvictionByEvictionAPI")
    j.anew(t + 25, moved={8: 9})
    j.says(t + 20, t + 600, "planned-drain", False)
    s.deleted(8, t + 400)


@trap(
    "a job makes room by a queue that admits it again with half of its pods, and gives it all of them in the morning",
    nodes=12,
    stem="q-",
    scrape=60,
)
def _(s):
    j = s.job("partial", range(10), "jobset")
    t, u = s.at(9.5), s.at(20)
    for pod in j.pods.values():
        pod.disrupted(t, "PreemptionByKueue")
    j.deleted(t + 6, grace=20)
    j.says(t, t + 2200, "preemption", False)
    other = s.job("first", range(5, 11), "pytorch", start=t + 40, namespace="prod")
    j.attempt = 0
    j.place(dict(enumerate(range(5))), t + 1800)
    other.done(u - 600)
    j.deleted(u, grace=15)
    j.attempt = 0
    j.place(dict(enumerate(range(10))), u + 40)
    j.says(u, u + 500, "resubmission", False)


@trap(
    "three hosts on one power strip die and come back after eleven minutes, at the same hour of both days; one of them is idle",
    nodes=12,
    stem="pdu-",
    scrape=30,
    racks=12,
)
def _(s):
    j = s.job("strip", range(8), "jobset")
    for h in (9.25, 33.25):
        t = s.at(h)
        for n in (6, 7, 8):
            s.dies(n, t + n - 6, t + 660 + 10 * n)
        s.says("domain", "strip", t, t + 730, "rack-outage", nodes=s.hosts[6:9])
        j.anew(t + TOLERATED + 50, first=6, wait=420)
        j.says(t, t + 1200, "rack-outage")


@trap(
    "certificates of the whole cluster's exporters run out: no host and no GPU speaks for ten hours, kubelets and jobs are well; a GPU fails meanwhile",
    nodes=10,
    stem="tls-",
    scrape=30,
)
def _(s):
    j = s.job("unseen", range(8), "pytorch")
    a, b = s.at(11), s.at(21)
    for n in range(10):
        for what in ("host", "dcgm"):
            s.silent[what, n].append((a + n, b + n))
    t = s.at(15)
    s.offers(3, t, 7)
    for slot, pod in j.pods.items():
        if slot != 3:
            pod.again(t + s.soon(4, 20), 134)
    s.cordon(3, t + 200, t + 5 * HOUR)
    j.moves(3, 8, t + 215)
    s.offers(3, t + 4.5 * HOUR, 8)
    s.node(3, t, t + 5 * HOUR, "gpu-lost")
    j.says(t, t + 700, "gpu-lost")

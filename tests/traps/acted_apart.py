"""A lot by assumptions of its own, written down before anything was asked.

nodes       named by rack and slot, by a cloud's scale set, or with a domain's dots; pools of 8 to
            16
taints      keys of Karpenter, of a house, of a cloud that takes machines back
days        what a site does by its calendar: swaps, upgrades, certificates, repairs of whole racks
storage     a bucket is away longer than jobs wait for it; saves of jobs do not fall together
jobs        come back smaller, with other pods, from queues that say nothing of why
clocks      of hosts, and of the server that scrapes, are set
"""

from site_histories import BEGIN, GONE, HOUR, NCCL, TOLERATED
from traps.acted import host_dies, trap


def joins(s, n, t):
    """A node comes only now."""
    s.deleted(n, BEGIN - 60, t, boot=t - 100)
    for what in ("host", "dcgm"):
        s.silent[what, n].append((BEGIN, t - 90))


@trap(
    "all nodes of a pool get another name one by one: cordoned, their pods evicted, deleted and made anew under the new name",
    nodes=12,
    stem="r1s",
    scrape=45,
)
def _(s):
    j = s.job("renamed", range(5))
    for k in range(5):
        t = s.at(13) + 3000 * k
        joins(s, 6 + k, t + 600)
        s.cordon(k, t, t + 699)
        j.pods[k].disrupted(t + 15, "EvictionByEvictionAPI")
        j.anew(t + 20, first=k, moved={k: 6 + k}, wait=640)
        j.says(t + 15, t + 1200, "planned-drain", False)
        s.deleted(k, t + 700)
        s.node(k, t, t + 700, "planned-drain", False)
    host_dies(s, j, 8, s.at(31), s.at(32), 11)


@trap(
    "the clocks of three hosts are set by 95 s, and that of one by twenty minutes; jobs train on",
    stem="compute-0-",
    scrape=20,
)
def _(s):
    s.job("ntp", range(8), "pytorch")
    for n, off in ((1, 95), (4, 95), (6, -95), (9, 1200)):
        boots = s.lines["node_boot_time_seconds", ("host", n), (("nodename", s.hosts[n]),)]
        s.boots(n, boots[-1][1] + off, s.at(14) + 60 * n)


@trap(
    "a GPU operator is upgraded: node after node its pods are deleted under a short cordon, GPUs are not offered, exporters start anew",
    nodes=10,
    stem="aks-h100-vmss0000",
    scrape=60,
)
def _(s):
    j = s.job("operator", range(8), "jobset")
    for k in range(8):
        t = s.at(21) + 1700 * k
        s.cordon(k, t, t + 480)
        j.anew(t + 40, first=k, wait=460)
        j.says(t + 40, t + 900, "planned-drain", False)
        s.offers(k, t + 70, 0)
        s.offers(k, t + 420, 8)
        s.silent["dcgm", k].append((t + 60, t + 410))
        s.node(k, t, t + 480, "planned-drain", False)


@trap(
    "certificates of one rack's kubelets run out at one moment: four nodes are unknown for two hours and a half, their hosts are well",
    nodes=16,
    stem="gpu.rack",
    scrape=30,
)
def _(s):
    j = s.job("certs", range(8), "jobset")
    t, u = s.at(17), s.at(19.5)
    for n in range(4, 8):
        s.away(n, t + n - 4, u + 3 * n)
    s.says("domain", "rack", t, u, "kubelet-down", nodes=s.hosts[4:8])
    j.anew(t + TOLERATED + 5, first=4, moved={n: n + 5 for n in range(4, 8)})
    j.says(t, t + 900, "kubelet-down")


@trap(
    "a queue takes a job back without a word for another; it comes again smaller, its pods under other uids",
    nodes=12,
    stem="trn-b200-",
    scrape=60,
)
def _(s):
    j = s.job("smaller", range(10), "pytorch")
    t = s.at(11.3)
    j.deleted(t, grace=20)
    j.says(t, t + 2 * HOUR, "preemption", False)
    winner = s.job("urgent", range(8), "pytorch", start=t + 30, namespace="prod")
    winner.deleted(t + 2 * HOUR)
    j.place(dict(enumerate(range(6))), t + 2.1 * HOUR)


@trap(
    "the bucket of checkpoints is away for fifty minutes: four jobs of four teams fail at their next saves and at loading, then all train on",
    nodes=14,
    stem="node-gpu-",
    scrape=30,
)
def _(s):
    t, back = s.at(26), s.at(26) + 3000
    for k, team in enumerate(("north", "east", "south", "west")):
        j = s.job(f"of-{team}", range(3 * k, 3 * k + 3), "pytorch", namespace=team)
        at = first = t + 240 + 410 * k  # each at its own next save
        while at < back:
            for pod in j.pods.values():
                pod.again(at + s.soon(0, 4), 1)
            at = max(pod.started for pod in j.pods.values()) + 75  # it retries, and gives up
        why = "four jobs that fail at other moments, each in a loop, may be four programs"
        j.says(first, back, "process-crash", contested=why)


@trap(
    "cooling is poor on a rack of four for three hours, twice: a condition of the house tells it, jobs are slower and train on",
    stem="dgx-su1-",
    scrape=120,
)
def _(s):
    s.job("hot", range(8), "lws")
    for n in range(11):
        s.condition(n, BEGIN - HOUR, 0, "CoolingDegraded")
    for n in range(4):
        for h in (12, 36):
            s.condition(n, s.at(h), 1, "CoolingDegraded")
            s.condition(n, s.at(h + 3), 0, "CoolingDegraded")


@trap(
    "Karpenter swaps two nodes every night for newer images: tainted, a new one joins, the pods go over, the old one is deleted",
    nodes=14,
    stem="ip-10-88-",
    scrape=30,
)
def _(s):
    j = s.job("drifted", range(8))
    new = 10
    for night in range(2):
        for k in range(2):
            t, n = s.at(2 + 24 * night) + 1500 * k, 2 * night + k
            joins(s, new, t + 60)
            s.taint(n, t, t + 199, "karpenter.sh/disrupted")
            slot = next(slot for slot, pod in j.pods.items() if pod.n == n)
            j.pods[slot].disrupted(t + 130, "EvictionByEvictionAPI")
            j.anew(t + 135, first=slot, moved={n: new})
            j.says(t + 130, t + 600, "planned-drain", False)
            s.deleted(n, t + 200)
            s.node(n, t, t + 200, "planned-drain", False)
            new += 1


@trap(
    "the network agent of all nodes is rolled: each kubelet is not ready for four minutes, one after the other; pods go on",
    nodes=12,
    stem="worker.train.example.org-",
    scrape=30,
)
def _(s):
    s.job("cni", range(10), "jobset")
    for n in range(12):
        t = s.at(15) + 320 * n
        for status, before, after in (("true", 1, 0), ("false", 0, 1)):
            s.tell(t, after, "kube_node_status_condition", **s.ready_of(n, status))
            s.tell(t + 240, before, "kube_node_status_condition", **s.ready_of(n, status))
        s.node(n, t, t + 240, "flap", False)


@trap(
    "a tray of an NVLink rack dies; the job moves, and the rest of the rack is drained for a switch and comes back after three hours",
    nodes=16,
    stem="nvl72-",
    scrape=30,
    racks=4,
)
def _(s):
    j = s.job("nvl", range(8), "jobset")
    t, u = s.at(29.2), s.at(29.8)
    s.dies(5, t, u + 3 * HOUR)
    s.node(5, t, u + 3 * HOUR, "node-down")
    j.anew(t + TOLERATED + 45, first=5, moved={5: 9})
    j.says(t, t + 800, "node-down")
    for n in (4, 6, 7):
        s.cordon(n, u, u + 3 * HOUR)
        s.dies(n, u + 1500, u + 9000)
        s.node(n, u, u + 3 * HOUR, "planned-drain", False)
    j.pods[4].disrupted(u + 20, "EvictionByEvictionAPI")
    j.anew(u + 25, first=4, moved={n: n + 6 for n in (4, 6, 7)})
    j.says(u + 20, u + 600, "planned-drain", False)


@trap(
    "a sweep: forty short jobs of one node, every third ends with 1 by its own settings; a host dies under one of them",
    nodes=10,
    stem="sweep-n",
    scrape=30,
)
def _(s):
    for k in range(40):
        n, t = k % 8, s.at(1.5) + 4000 * (k // 8) * 4 + 300 * (k % 8)
        j = s.job(f"trial-{k}", [n], "pytorch", start=t, namespace="sweep")
        if k == 19:
            u = t + 1900
            s.dies(n, u, u + 2400)
            s.node(n, u, u + 2400, "node-down")
            j.moves(0, 9, u + TOLERATED + 45)
            j.says(u, u + 900, "node-down")
            j.done(u + 6000, kept=300)
        elif k % 3 == 1:
            at = t + s.soon(200, 3000)
            j.pods[0].fails(at)
            j.pods[0].vanishes(at + 900)
            j.pods = {}
        else:
            j.done(t + s.soon(2500, 5200), kept=300)


@trap(
    "a cloud takes back a machine with a graceful shutdown: not ready, the pod fails as Terminated, another of the same name comes twenty minutes later",
    nodes=11,
    stem="mig-spot-",
    scrape=30,
)
def _(s):
    j = s.job("graceful", range(8), "jobset")
    for n, h in ((2, 10.4), (6, 27.7)):
        t = s.at(h)
        s.away(n, t + 3, t + 1300)
        for what in ("host", "dcgm"):
            s.silent[what, n].append((t + 30, t + 1280))
        s.deleted(n, t + 90, t + 1240, boot=t + 1210)
        why = "a machine that is taken back is nobody's fault"
        s.node(n, t, t + 1300, "reclaimed", contested=why)
        j.anew(t + 8, first=n, reason="Terminated", moved={n: 9 if n == 2 else 10})
        j.says(t, t + 500, "reclaimed", contested=why)


@trap(
    "the clock of the server that scrapes runs seven minutes ahead for an hour: what it holds has a hole at either end; a host dies later",
    nodes=11,
    stem="hpc-a-",
    scrape=60,
)
def _(s):
    j = s.job("ahead", range(8), "pytorch")
    for h in (16, 17):
        s.nothing_scraped(s.at(h), s.at(h) + 420)
    host_dies(s, j, 3, s.at(22.5), s.at(24), 9)


@trap(
    "one node of a pool gets another label of its rack at noon, and dies in the evening with the three that have that label by then",
    nodes=12,
    stem="mv-",
    scrape=30,
    racks=3,
)
def _(s):
    j = s.job("moved-rack", range(8), "jobset")
    noon, t = s.at(12), s.at(20.6)
    old = dict(label_pool="gpu", label_topology_row=f"{s.name}-row0", node=s.hosts[0])
    s.tell(noon, GONE, "kube_node_labels", **old)
    s.tell(noon, 1, "kube_node_labels", **(old | dict(label_topology_row=f"{s.name}-row1")))
    for n in (0, 3, 4, 5):
        s.dies(n, t + n, t + 4000)
    s.says("domain", "row1", t, t + 4000, "rack-outage", nodes=[s.hosts[n] for n in (0, 3, 4, 5)])
    j.anew(t + TOLERATED + 50, first=0, moved={0: 8, 3: 9, 4: 10, 5: 11})
    j.says(t, t + NCCL + 500, "rack-outage")

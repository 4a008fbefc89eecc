"""The second and the third lot of what happened, each written with its truth before it was
looked at.
"""

from site_histories import END, HOUR, NCCL
from traps.acted import host_dies, trap

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
    why = "where no sample has the eviction's reason, it may as well have crashed under the cordon"
    j.says(t, t + 500, "planned-drain", False, contested=why)
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

"""Small histories of nodes: configuration and cordons, who watches, what exporters tell, machines
that come and go.
"""

from small_histories import BEGIN, END, HOUR
from traps.kept import vignette

# ---------------------------------------------------------------- what stands is configuration, what changes is a cordon


@vignette("two taints stand on all nodes, one of them only from the tenth hour on; a host dies")
def _(c):
    key = c.r.choice(("team.example/llm", "reserved-for", "gpu"))
    for n in range(10):
        c.cordon(n, BEGIN, END, key)
        c.cordon(n, c.at(10), END, "billing.example/project")
    j = c.job()
    t = c.at(30)
    c.dies(2, t, t + 2500)
    c.node(2, t, t + 2500, "node-down")
    j.exit(t + 50, 1)
    j.move(2, 9, t + 340, t + 345)
    j.says(t, t + 700, "node-down")


@vignette(
    "a permanent taint on half of the nodes, which are another team's; one of these has a fatal XID, cordoned by the same key's sister"
)
def _(c):
    for n in range(5):
        c.cordon(n, BEGIN, END, "acme.io/research")
    c.job(nodes=range(5, 10))
    t = c.at(21)
    c.xid(1, t, 64)
    c.cordon(1, t + 900, t + 4 * HOUR, "acme.io/repair")
    c.node(1, t, t + 4 * HOUR, "gpu-fatal")


@vignette(
    "an agent's taint stands from 40 s after a host died; the node was still ready at the scrape between",
    scrape=15,
)
def _(c):
    j = c.job()
    t = c.at(18)
    c.dies(4, t, t + 3000, grace=55)
    c.cordon(4, t + 12, t + 4000, c.r.choice(("health.example/quarantine", "npd.io/sick")))
    c.node(4, t, t + 4000, "node-down")
    j.exit(t + 40, 134)
    j.move(4, 8, t + 100, t + 110)
    j.says(t, t + 600, "node-down")


@vignette(
    "all nodes unschedulable throughout: a scheduler of the house places the pods; a GPU falls off"
)
def _(c):
    for n in range(10):
        c.cordon(n, BEGIN, END)
    j = c.job()
    t = c.at(26)
    c.xid(6, t, 79)
    j.again(t + 40, moved={6: 9})
    c.node(6, t, t + 600, "gpu-lost")
    j.says(t, t + 500, "gpu-lost")


@vignette(
    "a maintenance taint on the whole pool for three hours: everything drained, all hosts reboot"
)
def _(c):
    j = c.job()
    t = c.at(15)
    for n in range(10):
        c.cordon(n, t, t + 3 * HOUR, "upgrade.example/window")
        c.dies(n, t + 1800 + 200 * n, t + 2300 + 200 * n)
        c.node(n, t, t + 3 * HOUR, "planned-drain", False)
    for pod in j.places.values():
        pod.end = t + 90
    j.make(dict(enumerate(range(8))), t + 3 * HOUR + 60)
    j.says(t + 90, t + 3 * HOUR + 400, "planned-drain", False)


# ---------------------------------------------------------------- who watches


@vignette(
    "the control plane loses a third of the nodes for eleven minutes; exporters and pods go on",
    nodes=12,
)
def _(c):
    c.job()
    t = c.at(22)
    for n in range(3, 7):
        c.not_ready[c.nodes[n]].append((t + c.r.randint(0, 20), t + 660))
        c.node(n, t, t + 660, "control-plane", False)


@vignette(
    "nobody has exporters on hosts; all kubelets are unknown for seven minutes, pods go on",
    exporters=False,
    dcgm=False,
)
def _(c):
    c.job()
    t = c.at(12)
    for n in range(10):
        c.not_ready[c.nodes[n]].append((t + c.r.randint(0, 20), t + 430))
        c.node(n, t, t + 430, "control-plane", False)


@vignette(
    "a switch takes six nodes for fifteen minutes, and the job with it; no label says which nodes share it",
    nodes=14,
    labels=False,
)
def _(c):
    j = c.job()
    t = c.at(33)
    names = [c.nodes[n] for n in range(2, 8)]
    for n in names:
        c.not_ready[n].append((t + 45, t + 900))
        c.dark[n].append((t, t + 890))
    c.says("domain", "switch", t, t + 900, "rack", True, nodes=names)
    j.exit(t + 610, 1)
    j.says(t, t + 1000, "rack")


@vignette(
    "a rack's power: five hosts die at once, three are back after eight minutes and two after an hour",
    nodes=15,
)
def _(c):
    j = c.job()
    t = c.at(27)
    for n in range(5):
        c.dies(n, t + n, t + (480 if n < 3 else 3700))
    c.says("domain", "rack", t, t + 3700, "rack", True, nodes=c.nodes[:5])
    j.again(t + 400, moved={n: n + 8 for n in range(5)})
    j.says(t, t + 900, "rack")


@vignette(
    "prometheus cannot scrape the hosts of one rack for twenty minutes; kubelets are ready",
    nodes=10,
)
def _(c):
    c.job()
    for n in range(5):
        c.dark[c.nodes[n]].append((c.at(20), c.at(20) + 1200))


@vignette("a new detector says GPUUnhealthy of every node for six hours; nothing else happens")
def _(c):
    c.job()
    for n in c.nodes:
        c.conditions.append((n, "GPUUnhealthy", c.bools([(c.at(14), c.at(20))])))


# ---------------------------------------------------------------- what exporters tell


@vignette(
    "node-problem-detector alone counts XIDs of a GPU, the job's pods fail, the node is cordoned an hour later",
    dcgm=False,
)
def _(c):
    j = c.job()
    t = c.at(19)
    c.counters += [(n, "NvidiaXidCritical", [t] if k == 3 else []) for k, n in enumerate(c.nodes)]
    j.exit(t + 5, 1)
    c.cordon(3, t + HOUR, t + 3 * HOUR)
    c.node(3, t, t + 3 * HOUR, "gpu-fatal")
    j.says(t, t + 400, "gpu-fatal")


@vignette(
    "one GPU a node; it is no longer offered for five hours, cordoned after one", gpus=1, dcgm=False
)
def _(c):
    j = c.job()
    t = c.at(16)
    c.offered[c.nodes[5]] = {
        "nvidia_com_gpu": [(BEGIN, t, 1), (t, t + 5 * HOUR, 0), (t + 5 * HOUR, END, 1)]
    }
    c.cordon(5, t + HOUR, t + 5 * HOUR)
    j.exit(t + 4, 1)
    j.move(5, 9, t + 60, t + 70)
    c.node(5, t, t + 5 * HOUR, "gpu-lost")
    j.says(t, t + 500, "gpu-lost")


@vignette("GPUs are divided into MIG devices on two nodes for a day", dcgm=False)
def _(c):
    c.job(nodes=range(4))
    for n in (7, 8):
        c.offered[c.nodes[n]] = {
            "nvidia_com_gpu": [(BEGIN, c.at(9), 8), (c.at(9), c.at(30), 0), (c.at(30), END, 8)],
            "nvidia_com_mig_1g_10gb": [
                (BEGIN, c.at(9), 0),
                (c.at(9) + 60, c.at(30), 56),
                (c.at(30), END, 0),
            ],
        }


@vignette("the device plugin is rolled: 8, 0, 3, 8 GPUs within five minutes a node", dcgm=False)
def _(c):
    c.job()
    for k, n in enumerate(c.nodes):
        t = c.at(11) + 400 * k
        c.offered[n] = {
            "nvidia_com_gpu": [
                (BEGIN, t, 8),
                (t, t + 130, 0),
                (t + 130, t + 290, 3),
                (t + 290, END, 8),
            ]
        }


@vignette(
    "only DCGM_EXP_XID_ERRORS_COUNT, whose series ends when its window is over: XID 31 on one node, 95 on another",
    dcgm=False,
)
def _(c):
    j = c.job()
    t, u = c.at(13), c.at(29)
    c.extra.append(
        (
            c.nodes[1],
            "DCGM_EXP_XID_ERRORS_COUNT",
            'gpu="1",UUID="GPU-x",xid="31",window_size_in_ms="300000"',
            [(t, t + 300, 1)],
        )
    )
    c.extra.append(
        (
            c.nodes[4],
            "DCGM_EXP_XID_ERRORS_COUNT",
            'gpu="3",UUID="GPU-y",xid="95",window_size_in_ms="300000"',
            [(u, u + 300, 2)],
        )
    )
    c.cordon(4, u + 2000, u + 2 * HOUR)
    c.node(4, u, u + 2 * HOUR, "gpu-fatal")
    c.node(1, t, t, "user-xid", False)
    j.again(u + 20, moved={4: 9})
    j.says(u, u + 500, "gpu-fatal")


@vignette("a condition that is true where all is well falls to false for two hours on one node")
def _(c):
    j = c.job()
    t = c.at(24)
    for k, n in enumerate(c.nodes):
        c.conditions.append(
            (
                n,
                "AcceleratedHardwareReady",
                c.bools([(t, t + 2 * HOUR)] if k == 2 else [], off=1, on=0),
            )
        )
    j.exit(t + 3, 1)
    c.node(2, t, t + 2 * HOUR, "gpu-fatal")
    j.says(t, t + 400, "gpu-fatal")


@vignette(
    "a condition appears with the fault: no series of it before; the provider replaces nothing"
)
def _(c):
    j = c.job()
    t = c.at(35)
    c.conditions.append((c.nodes[6], "NVLinkStatusInactive", [(t, t + 3 * HOUR, 1)]))
    c.cordon(6, t + 1200, t + 3 * HOUR)
    j.again(t + 30, moved={6: 8})
    c.node(6, t, t + 3 * HOUR, "gpu-fatal")
    j.says(t, t + 500, "gpu-fatal")


@vignette(
    "an NVLink domain of four tells XID 149 within a minute, at scrapes of two minutes",
    nodes=12,
    scrape=120,
    rack=4,
)
def _(c):
    j = c.job()
    t = c.at(20)
    for n in range(4, 8):
        c.xid(n, t + c.r.randint(0, 50), 149)
        c.cordon(n, t + 1500, t + 2 * HOUR)
    c.says("domain", "clique", t, t + 2 * HOUR, "gpu-fatal", True, nodes=c.nodes[4:8])
    j.again(t + 60, moved={4: 8, 5: 9, 6: 10, 7: 11})
    j.says(t, t + 700, "gpu-fatal")


# ---------------------------------------------------------------- machines come and go


@vignette("everything is silent for three hours; a host reboots within")
def _(c):
    t = c.at(22)
    c.gaps.append((t, t + 3 * HOUR))
    c.boots[c.nodes[3]].append(t + 2 * HOUR)
    c.job()
    c.node(3, t + 2 * HOUR - 200, t + 2 * HOUR + 90, "reboot")


@vignette(
    "five nodes are added at noon, not ready for eight minutes while drivers are installed",
    nodes=12,
)
def _(c):
    c.job()
    for n in range(7, 12):
        t = c.at(12) + 30 * n
        name = c.nodes[n]
        c.lives[name] = [(t, END)]
        c.boots[name] = [t - 90]
        c.not_ready[name].append((t, t + 480))


for_elastic = "idle nodes are taken away in the evening and made again under their names in the morning, thrice"


@vignette(for_elastic, nodes=12)
def _(c):
    c.job()
    for n in range(9, 12):
        name = c.nodes[n]
        c.lives[name] = [(BEGIN, c.at(8)), (c.at(14), c.at(22)), (c.at(30), END)]
        c.boots[name] += [c.at(14) - 60, c.at(30) - 60]


@vignette("machines are reclaimed with 30 s of notice, unlike names come instead", nodes=12)
def _(c):
    j = c.job()
    t = c.at(17)
    key = c.r.choice(("cloud.example/impending-termination", "termination-notice"))
    for n in (2, 3):
        name = c.nodes[n]
        c.cordon(n, t, t + 45, key)
        c.lives[name] = [(BEGIN, t + 45)]
        c.node(n, t, t + 45, "spot")
    for n in (10, 11):
        c.lives[c.nodes[n]] = [(t + 200, END)]
        c.boots[c.nodes[n]] = [t + 100]
    j.again(t + 30, wait=260, moved={2: 10, 3: 11})
    j.says(t, t + 700, "spot")


@vignette("flaps of two and three minutes at scrapes of three minutes", scrape=180)
def _(c):
    c.job()
    for k in range(7):
        t = c.at(5 + 5 * k)
        c.not_ready[c.nodes[k]].append((t, t + c.r.randint(100, 260)))
        c.node(k, t, t + 200, "flap", False)


@vignette(
    "a kubelet hangs for fourteen minutes at scrapes of five, its pod is evicted and made anew",
    scrape=300,
)
def _(c):
    j = c.job()
    t = c.at(25)
    c.not_ready[c.nodes[1]].append((t + 40, t + 840))
    c.node(1, t, t + 840, "kubelet-down")
    j.exit(t + 380, 1)
    j.move(1, 9, t + 370, t + 380)
    j.says(t, t + 900, "kubelet-down")


@vignette(
    "rolling driver upgrade: cordon, drained within two minutes, GPUs not offered for ten, reboot, uncordon",
    nodes=10,
)
def _(c):
    c.job(nodes=range(3))
    for k in range(3, 10):
        t = c.at(8 + k)
        n = c.nodes[k]
        c.cordon(k, t, t + 1500)
        c.dies(k, t + 300, t + 700)
        c.offered[n] = {
            "nvidia_com_gpu": [(BEGIN, t + 200, 8), (t + 200, t + 1100, 0), (t + 1100, END, 8)]
        }
        c.node(k, t, t + 1500, "planned-drain", False)

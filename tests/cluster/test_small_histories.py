"""Small histories with one trap each: what is easily misread is told right.

They were written in six lots, each judged once before anything was changed for it: 35 of 39, 14 of 17 and 11 of 12 were wholly right,
nodes .94/.94 (recall/precision) and jobs .98/.86 over all three; 15 of 17, nodes 1.00/1.00 and jobs .71/1.00, for pods of
LeaderWorkerSets were no job's; 13 of 14, nodes 1.00/.92 and jobs 1.00/1.00, for a reboot that mended a GPU was a second fault; and 16
of 20, nodes .92/.92 and jobs 1.00/.54, for programs that end by their own limit of time were failures.

To see answers: MOFA_SMALL_HISTORIES=FOLDER keeps the samples and the truth there.
"""

import json
import os
from pathlib import Path

import pytest
from mofa_local.blocks import write_block
from mofa_local.processes import Processes
from mofa_local.prometheus import Prometheus as Server
from small_histories import BEGIN, END, HOUR, Cluster, sampled

from mofa_model.cli import main

MADE = []


def vignette(note, late=False, **more):
    def keep(function):
        def make(number):
            c = Cluster(f"w{number:02d}", note, not late, **more)
            function(c)
            return c

        MADE.append(make)
        return function

    return keep


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


# ---------------------------------------------------------------- whose fault an exit is


@vignette(
    "the file system hangs for all: three jobs' containers exit 1 within a minute, and all go on"
)
def _(c):
    t = c.at(28)
    for k, nodes in enumerate((range(4), range(4, 7), range(7, 10))):
        j = c.job(f"team{k}", nodes)
        j.exit(t + 15 * k, 1)
        j.says(t, t + 600, "transient")


@vignette(
    "a bug at one batch: after 18 minutes in place, five times from the checkpoint, then mended by a new job"
)
def _(c):
    j = c.job("llava", start=BEGIN + 2 * HOUR)
    t = BEGIN + 9 * HOUR
    for k in range(5):
        at = t + 1110 * k
        j.exit(at, 1, back=20)
        j.says(at, at + 100, "user-crash-loop", False)
    last = t + 5 * 1110
    j.again(last, wait=3000, phase="")
    j.says(last, last + 3300, "user-crash-loop", False)


@vignette("a bug in a JobSet: fails 70 minutes after every start, pods Failed, seven attempts")
def _(c):
    j = c.job("mm", kind="jobset", start=BEGIN + HOUR)
    t = BEGIN + HOUR
    for _ in range(6):
        t += 4200
        j.says(t, t + 80, "user-crash-loop", False)
        j.again(t, wait=25)
        t += 55
    j.stops(t + 4200, "Failed")


@vignette(
    "imports fail: exit 1 half a minute after each start, backing off, then the user deletes it"
)
def _(c):
    j = c.job("draft", start=BEGIN + 5 * HOUR)
    t = BEGIN + 5 * HOUR + 60
    start = t
    for k in range(7):
        j.exit(t, 1, spread=3, back=min(300, 10 * 2**k))
        t += 40 + min(300, 10 * 2**k)
    j.stops(t + 600, "")
    j.says(start, t + 600, "user-crash-loop", False)


@vignette(
    "an NCCL watchdog under torchrun three times in two days, seven hours and more apart, all exit 1 at once"
)
def _(c):
    j = c.job()
    for h in (7, 20.5, 31):
        j.exit(c.at(h), 1, spread=12)
        j.says(c.at(h) - 600, c.at(h) + 400, "nccl-timeout")


@vignette("a process is killed (139), the others abort (134); twice, hours apart")
def _(c):
    j = c.job()
    for h in (11, 26):
        j.exit(c.at(h), (139, 134), spread=40, first=3)
        j.says(c.at(h), c.at(h) + 400, "process-crash")


@vignette(
    "a program raises in one pod (1), the others are told to end (143); once, with XID 31 on its node"
)
def _(c):
    j = c.job()
    t = c.at(23)
    c.xid(2, t - 2, 31)
    j.exit(t, (1, 143), spread=30, first=2)
    c.node(2, t, t, "user-xid", False)
    j.says(t, t + 400, "user-crash", False)


@vignette("OOMKilled in one pod, restarted; the others exit 1 at NCCL's timeout ten minutes later")
def _(c):
    j = c.job()
    t = c.at(18)
    j.places[1].exits.append((t, t + 15, 137, "OOMKilled"))
    for slot, pod in j.places.items():
        if slot != 1:
            pod.exits.append((t + 600 + slot, t + 615 + slot, 1, "Error"))
    j.says(t, t + 900, "oom-killed", False)


@vignette(
    "a user deletes the pods of a JobSet and starts it anew with another image, twice in an hour"
)
def _(c):
    j = c.job("tune", kind="jobset")
    for h in (15, 15.8):
        j.says(c.at(h), c.at(h) + 300, "resubmission", False)
        j.attempt = -1
        j.again(c.at(h), wait=200, phase="")


@vignette(
    "Kueue preempts: pods end with no reason, a job of another namespace has the nodes a minute later, back after five hours"
)
def _(c):
    j = c.job("low", kind="jobset")
    t = c.at(14)
    j.says(t, t + 5 * HOUR, "preemption", False)
    for pod in j.places.values():
        pod.end = t
    other = c.job("urgent", nodes=range(8), kind="jobset", start=t + 40)
    other.stops(t + 5 * HOUR - 120)
    j.make(dict(enumerate(range(8))), t + 5 * HOUR)


@vignette(
    "a node whose GPU had an XID yesterday and was uncordoned untested: its job crashes there again, exit 1, no new XID"
)
def _(c):
    j = c.job()
    t = c.at(6)
    c.xid(4, t, 94, until=t + 2 * HOUR)
    c.cordon(4, t + 600, t + 3 * HOUR)
    c.node(4, t, t + 3 * HOUR, "gpu-fatal")
    j.again(t + 20, moved={4: 9})
    j.says(t, t + 500, "gpu-fatal")
    u = c.at(30)
    j.exit(u, 1)
    j.says(u, u + 400, "process-crash")


@vignette(
    "a host dies under torchrun; its pod is made anew after the eviction, the others exit twice; scrapes of two minutes",
    scrape=120,
)
def _(c):
    j = c.job()
    t = c.at(29)
    c.dies(3, t, t + 5000)
    c.node(3, t, t + 5000, "node-down")
    j.exit(t + 30, 1, first=1)
    j.exit(t + 640, 1, first=1)
    j.places[3].exits = []
    j.move(3, 9, t + 345, t + 350)
    j.says(t, t + 1000, "node-down")


@vignette(
    "a job that is done: its pods succeed, and a nightly job of the same name runs the next night"
)
def _(c):
    j = c.job("eval", range(3), "jobset", BEGIN + 2 * HOUR)
    j.stops(BEGIN + 6 * HOUR)
    j.make({0: 0, 1: 1, 2: 2}, BEGIN + 26 * HOUR)
    j.stops(BEGIN + 30 * HOUR)


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
    told = c.series

    def series():
        for metric, labels, runs in told():
            old, new = "10.0.0.1:8080", "10.0.7.9:8080"
            yield metric, labels, cut(runs, noon, END + 1) if old in labels else runs
            if old in labels:
                yield metric, labels.replace(old, new), cut(runs, 0, noon)

    c.series = lambda: [one for one in series() if one[2]]


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
    told = c.series

    def series():
        for metric, labels, runs in told():
            yield metric, f'{labels},replica="a"', cut(runs, t - 900, t + 2700)
            late = [[first + 4, count, step, value] for first, count, step, value in runs]
            yield metric, f'{labels},replica="b"', cut(late, c.at(30), c.at(31))

    c.series = lambda: [one for one in series() if one[2]]


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
    told = c.series

    def series():
        for metric, labels, runs in told():
            kept = cut(runs, noon, END + 1)
            for first, count, step, value in cut(runs, 0, noon):
                times = range(first, first + count * step, step)
                few = [at for at in times if (at - first) % 120 == 0]
                kept += [[at, 1, step, value] for at in few]
            yield metric, labels, kept

    c.series = lambda: [one for one in series() if one[2]]


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
    told = c.series

    def series():
        for metric, labels, runs in told():
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


def made(every):
    return [make(number + 1) for number, make in enumerate(MADE[::every])]


def right_and_wrong(truth, told):
    """Found, missed and false ones of nodes and of jobs; an incident of a domain is one of a node."""
    counted = {"node": [0, 0, 0], "job": [0, 0, 0]}
    used = set()
    for one in truth["incidents"]:
        if not one["counts"]:
            continue
        kind = "job" if one["kind"] == "job" else "node"
        names = set(one.get("nodes", [one["name"]]))
        hit = None
        for number, other in enumerate(told):
            is_job = other["kind"] == "job"
            own = {other["job"]} if is_job else set(other.get("nodes") or [other["node"]])
            near = one["start"] - 900 <= other["start"] <= one["end"] + 1800
            if (
                number not in used
                and other["counts"]
                and is_job == (kind == "job")
                and near
                and own & names
            ):
                hit = number
                break
        used.add(hit)
        counted[kind][hit is None] += 1
    for number, other in enumerate(told):
        if other["counts"] and number not in used:
            counted["job" if other["kind"] == "job" else "node"][2] += 1
    return counted


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
def test_of_what_is_easily_misread_nearly_all_is_told_right(tmp_path, capsys, binaries, every):
    binaries.path("prometheus")
    folder = Path(os.environ.get("MOFA_SMALL_HISTORIES") or tmp_path)
    histories = made(every)
    truth = {c.name: c.written() for c in histories}
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
    sums = {"node": [0, 0, 0], "job": [0, 0, 0]}
    wrong = []
    with Processes(folder / "server") as processes:
        server = Server(processes, folder / "server")
        write_block(sampled(histories), server.data)
        server.start()
        for name, one in truth.items():
            capsys.readouterr()
            window = ["--start", str(BEGIN), "--end", str(END), "-o", "json"]
            asked = ["--prometheus", server.url, "--match", one["match"], *window]
            code, told = main(["incidents", *asked]), capsys.readouterr()
            assert code == 0, told.err
            document = json.loads(told.out)
            capacity = document["account"]["capacity_node_days"] * 24
            assert capacity == pytest.approx(one["node_hours"], rel=0.01), name
            found = right_and_wrong(one, document["incidents"])
            wrong += [
                f"{name} {one['note']}: {found}" for counts in found.values() if any(counts[1:])
            ]
            for kind, counts in found.items():
                sums[kind] = [a + b for a, b in zip(sums[kind], counts, strict=True)]
    for kind, (hits, missed, false) in sums.items():
        assert hits / (hits + missed) >= 0.95, (kind, wrong)
        assert hits / (hits + false) >= 0.95, (kind, wrong)

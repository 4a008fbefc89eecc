"""A lot on who takes a node away, by what autoscalers, handlers of notices and upgrades are
documented to do.

swaps       wait until the new node is there, then evict, end the machine, and delete the node when
            it is gone
notices     evict at once; another node comes meanwhile or later, and the old one's object stays for
            a minute or two

Rules that knew how long a deletion took, and nothing of other nodes, told none of the first four
right.
"""

from site_histories import END, TOLERATED
from traps.acted import trap
from traps.acted_apart import joins


def comes(s, n, there, ready):
    """A node joins, and is ready later."""
    joins(s, n, there)
    s.away(n, there, ready)


def machine_ends(s, n, t, gone):
    """A machine is ended; the node's object is deleted later, and is not ready once it
    is missed.
    """
    if gone - t > 45:
        s.away(n, t + 45, gone)
    for what in ("host", "dcgm"):
        s.silent[what, n].append((t, END))
    s.deleted(n, gone)


def moved(s, j, n, new, evicted, ended, wait=35):
    """One pod is evicted and ends within its grace, and the whole job is made anew."""
    slot = next(slot for slot, pod in j.pods.items() if pod.n == n)
    j.pods[slot].disrupted(evicted, "EvictionByEvictionAPI")
    j.anew(ended, first=slot, moved={n: new}, wait=wait)


@trap(
    "a pool's nodes are upgraded with one to spare: another joins, the old one is cordoned, drained at once and deleted two minutes later",
    nodes=12,
    stem="gke-a3-",
    scrape=30,
)
def _(s):
    j = s.job("upgraded", range(8), "volcano")
    for k in range(4):
        t = s.at(13) + 900 * k
        comes(s, 8 + k, t - 75, t - 20)
        s.cordon(k, t, END)
        moved(s, j, k, 8 + k, t + 3, t + 34)
        machine_ends(s, k, t + 60, t + 130)
        s.node(k, t, t + 130, "planned-drain", False)
        j.says(t, t + 600, "planned-drain", False)


@trap(
    "nodes drift from a newer image: tainted, the new one is there after two minutes and ready after four, then the pod is evicted",
    nodes=12,
    stem="ip-10-3-",
    scrape=60,
)
def _(s):
    j = s.job("drifts", range(8))
    for k, h in enumerate((3.1, 3.4, 27.2)):
        t = s.at(h)
        comes(s, 9 + k, t + 130, t + 245)
        s.taint(k, t, END, "karpenter.sh/disrupted")
        moved(s, j, k, 9 + k, t + 250, t + 281)
        machine_ends(s, k, t + 284, t + 350)
        s.node(k, t, t + 350, "planned-drain", False)
        j.says(t + 250, t + 900, "planned-drain", False)


@trap(
    "spot machines, a notice of two minutes: evicted at once, the machine ended with its last pod, its node deleted at 190 s; another is ready by then",
    nodes=12,
    stem="spot.us-",
    scrape=15,
)
def _(s):
    j = s.job("noticed", range(8))
    for k, h in enumerate((6.3, 19.7, 33.9)):
        t = s.at(h)
        comes(s, 9 + k, t + 70, t + 115)
        s.taint(k, t, END, "karpenter.sh/disrupted")
        moved(s, j, k, 9 + k, t + 2, t + 33, wait=90)
        machine_ends(s, k, t + 36, t + 190)
        s.node(k, t, t + 190, "reclaimed")
        j.says(t, t + 700, "reclaimed")


@trap(
    "a handler of notices drains at once, the machine ends after two minutes, its node is deleted once it is missed, and its group starts another",
    nodes=12,
    stem="asg-",
    scrape=30,
)
def _(s):
    j = s.job("handled", range(8), "volcano")
    for k, h in enumerate((8.8, 9.3, 30.5)):
        t = s.at(h)
        comes(s, 9 + k, t + 330, t + 375)
        s.cordon(k, t, END)
        moved(s, j, k, 9 + k, t + 2, t + 33, wait=350)
        machine_ends(s, k, t + 120, t + 172)
        s.node(k, t, t + 172, "reclaimed")
        j.says(t, t + 900, "reclaimed")


@trap(
    "nodes end at their greatest age: evicted and ended at once, with no wait for the nodes that come in their place",
    nodes=12,
    stem="aged-",
    scrape=30,
)
def _(s):
    j = s.job("aged", range(8))
    why = "nothing but its order tells an end by age from a notice, and both evict at once"
    for k, h in enumerate((11.2, 11.9, 35.2)):
        t = s.at(h)
        comes(s, 9 + k, t + 95, t + 160)
        s.taint(k, t, END, "karpenter.sh/disrupted")
        moved(s, j, k, 9 + k, t + 2, t + 33, wait=130)
        machine_ends(s, k, t + 36, t + 110)
        s.node(k, t, t + 110, "planned-drain", False, contested=why)
        j.says(t, t + 700, "planned-drain", False, contested=why)


@trap(
    "a node that drifted waits five hours for its job, by a grace of its own; then the pod is evicted, and the machine ended",
    nodes=12,
    stem="pt-",
)
def _(s):
    j = s.job("waited-for", range(8))
    for k, h in enumerate((3.1, 22.4)):
        t = s.at(h)
        end = s.at(h + 5)
        comes(s, 9 + k, t + 130, t + 245)
        s.taint(k, t, END, "karpenter.sh/disrupted")
        moved(s, j, k, 9 + k, end, end + 31)
        machine_ends(s, k, end + 34, end + 130)
        s.node(k, t, end + 130, "planned-drain", False)
        j.says(end, end + 600, "planned-drain", False)


@trap(
    "four nodes of one job are taken back within a minute, and four others come within five minutes",
    nodes=18,
    stem="wave-",
    scrape=30,
)
def _(s):
    j = s.job("wave", range(8))
    t = s.at(20)
    for k in range(4):
        comes(s, 9 + k, t + 200 + 20 * k, t + 260 + 20 * k)
        s.taint(k, t + 12 * k, END, "house/leaving")
        machine_ends(s, k, t + 36 + 12 * k, t + 150 + 12 * k)
        s.node(k, t + 12 * k, t + 150 + 12 * k, "reclaimed")
    j.pods[0].disrupted(t + 2, "EvictionByEvictionAPI")
    j.anew(t + 33, first=0, moved={k: 9 + k for k in range(4)}, wait=330)
    j.says(t, t + 900, "reclaimed")


@trap(
    "a pool grows for a queue while a host dies for good; its node is deleted after eleven minutes, once another has come in its place",
    nodes=16,
    stem="grow-",
    scrape=30,
)
def _(s):
    j = s.job("grown", range(8))
    t = s.at(28)
    for k in range(4):
        comes(s, 10 + k, t - 60 + 40 * k, t + 30 + 40 * k)
    comes(s, 14, t + 600, t + 640)
    s.taint(5, t + 70, END, "house/unhealthy")
    s.away(5, t + 45, t + 660)
    for what in ("host", "dcgm"):
        s.silent[what, 5].append((t, END))
    s.deleted(5, t + 660)
    s.node(5, t, t + 660, "node-lost")
    j.anew(t + TOLERATED + 45, first=5, moved={5: 9})
    j.says(t, t + 800, "node-lost")

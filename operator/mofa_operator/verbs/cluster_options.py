"""Options of verbs that look at a cluster through a person's own kubeconfig, as kubectl has them. Not a verb."""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from mofa_model.errors import BadFile

if TYPE_CHECKING:
    from mofa_operator.api import Api
    from mofa_operator.credentials import Credentials

T = TypeVar("T")


def add_options(parser: ArgumentParser, *, namespace: str) -> None:
    """Give a verb --kubeconfig, --context and -n; `namespace` says what holds where nobody gives one."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig (default: KUBECONFIG, ~/.kube/config)"
    )
    group.add_argument("--context", metavar="NAME", help="context of it (default: its current one)")
    group.add_argument(
        "-n", "--namespace", metavar="NAME", help=f"namespace (default: {namespace})"
    )


def read(arguments: Namespace, ask: Callable[[Api], Awaitable[T]]) -> T:
    """What `ask(api)` reads of the cluster that the options name."""
    from mofa_model.errors import SourceUnreachable
    from mofa_operator.api import Api
    from mofa_operator.refusals import Busy

    known = credentials(arguments)

    async def asked() -> T:
        async with Api(known) as api:
            try:
                return await ask(api)
            except Busy as error:
                raise SourceUnreachable(
                    f"the API server {known.access.server} does not answer: {error}"
                ) from None

    return asyncio.run(asked())


def credentials(arguments: Namespace) -> Credentials:
    """Credentials of the kubeconfig and the context that the options name."""
    from mofa_operator.credentials import Credentials

    _named(arguments)
    return Credentials.from_environment(arguments.context)


def namespace(arguments: Namespace) -> str:
    """The namespace that is meant where one is needed: that of -n, else of the context."""
    from mofa_operator.credentials import namespace_of

    _named(arguments)
    return arguments.namespace or namespace_of(arguments.context)


def _named(arguments: Namespace) -> None:
    if arguments.kubeconfig is not None:
        if not os.path.isfile(arguments.kubeconfig):  # noqa: PTH113 - pathlib is slower to import
            raise BadFile(arguments.kubeconfig, "there is no such kubeconfig")
        os.environ["KUBECONFIG"] = arguments.kubeconfig

"""Run the operator: watch a cluster, advise its training jobs, and write the advice down."""

from __future__ import annotations

import gc
import os
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import Final

from mofa_model import output, terminal
from mofa_model.errors import BadFile
from mofa_operator.verbs import flags

EXAMPLES: Final = """\
Every flag has an environment variable: --prometheus-url is MOFA_PROMETHEUS_URL. A flag counts more.

examples:
  against the cluster of the current kubeconfig, writing nothing
    mofa operator --dry-run --verbose
  with failure history, in two namespaces
    mofa operator --prometheus-url http://prometheus:9090 --namespace team-a,team-b

exit codes: 0 stopped by a signal, 1 something failed, 2 bad settings, 4 the API server does not answer"""


def configure(parser: ArgumentParser) -> None:
    """One flag for each setting."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig (default: KUBECONFIG, else the pod's account)",
    )
    parser.add_argument(
        "--print-settings", action="store_true", help="print what would be in force, and exit"
    )
    flags.configure(parser)


def run(arguments: Namespace) -> int:
    """Run until a signal comes."""
    settings = flags.settings_of(arguments)
    if arguments.kubeconfig is not None:
        if not os.path.isfile(arguments.kubeconfig):  # noqa: PTH113 - pathlib is slower to import
            raise BadFile(arguments.kubeconfig, "there is no such kubeconfig")
        os.environ["KUBECONFIG"] = arguments.kubeconfig
    if arguments.print_settings:
        headers = tuple(f"{header.partition('=')[0]}=…" for header in settings.prometheus.header)
        shown = replace(settings, prometheus=replace(settings.prometheus, header=headers))
        terminal.put(output.as_json(shown))
        return 0
    from mofa_operator.control.stop import Stop

    stop = Stop()  # before the imports that take long
    from mofa_operator.control import logs
    from mofa_operator.control.run import operate

    gc.freeze()  # what was imported is no garbage: to look through it took a sixth of the operator's time
    logs.set_up(settings.log_format, verbose=settings.verbose)
    return operate(settings, stop)

"""Who runs which test: some wait for processes and clocks, the others compute, and each sort has
workers of its own.

Workers up to the number of cores take what computes. Those beyond take what waits, each with a
cluster of its own; they collect nothing else. Without workers beyond, everybody takes everything. A
worker takes a whole file, whose tests may share something big.

xdist's own groups (`--dist loadgroup`) would keep files together, but they know of no two sorts
of workers.
"""

from mofa_local.processes import CORES
from xdist.scheduler import LoadScopeScheduling

BESIDE = 2
"""Workers beside those of the cores, where there is something to wait for."""
WAITING = (
    "tests/cluster",
    "tests/faults",
    "tests/local/test_slurm.py",
    "tests/local/test_slurm_launch.py",
    "tests/node",
    "tests/hostile/test_attested.py",
    "tests/hostile/test_one_site.py",
    "tests/hostile/test_siege.py",
    "tests/dashboards/test_live_panels.py",
)
"""Rooms and files whose tests hold real processes to deadlines: they mostly wait."""
FIRST = (
    # what waits
    "tests/cluster/test_documents.py",
    "tests/faults/test_api_server.py",
    "tests/faults/test_prometheus.py",
    "tests/cluster/test_operator.py",
    "tests/cluster/test_kinds.py",
    "tests/cluster/test_live.py",
    "tests/cluster/test_ledger.py",
    "tests/cluster/test_apply.py",
    "tests/cluster/test_assumptions.py",
    "tests/cluster/test_crds.py",
    "tests/cluster/test_control_plane.py",
    "tests/cluster/test_chart.py",
    "tests/hostile/test_one_site.py",
    "tests/cluster/test_history.py",
    "tests/cluster/test_local_stack.py",
    "tests/cluster/test_health.py",
    "tests/faults/test_foreign_text.py",
    "tests/hostile/test_attested.py",
    # what computes
    "tests/test_newcomer.py",
    "tests/test_help.py",
    "tests/docs/test_commands.py",
    "tests/mofa_operator/control/test_shutdown.py",
    "tests/hostile/test_forged_nodes.py",
    "tests/test_packaging.py",
    "tests/mofa_model/search/test_exhaustive.py",
    "tests/rules/test_rules.py",
    "tests/mofa_model/properties/test_laws.py",
    "tests/mofa_model/launch/test_reachable.py",
    "tests/mofa_lab/fitting/test_campaign.py",
    "tests/mofa_model/test_advice.py",
    "tests/mofa_lab/traces/test_predict.py",
    "tests/hostile/test_cost.py",
    "tests/test_notebook.py",
    "tests/mofa_lab/traces/test_generated.py",
    "tests/mofa_model/reliability/test_assumption.py",
    "tests/mofa_model/manifest/test_shipped.py",
    "tests/mofa_model/properties/test_same_bits.py",
)
"""The longest files, so that none of them starts last."""


def waits(nodeid):
    """Whether a test, a file or a folder belongs to those that wait."""
    return any(
        nodeid == place or nodeid.startswith((f"{place}/", f"{place}::")) for place in WAITING
    )


def turn(item):
    """What takes longest starts first."""
    file = item.nodeid.partition("::")[0]
    return FIRST.index(file) if file in FIRST else len(FIRST)


def beside(config):
    """Whether this process is a worker for what waits."""
    worker = getattr(config, "workerinput", None)
    return worker is not None and _beside(worker["workerid"], worker["workercount"])


def _beside(name, count):
    return CORES <= int(name.removeprefix("gw")) < count


class Sorts(LoadScopeScheduling):
    """Two queues in one: a worker takes the first piece of its own sort, and of the other one when
    there is no more.
    """

    def _split_scope(self, nodeid):
        return nodeid.partition("::")[0]

    def _check_nodes_have_same_collection(self):
        """They need not: what waits is all that the workers beside collect. The longest
        stands first.
        """
        by_size = sorted(self.registered_collections.items(), key=lambda item: -len(item[1]))
        self.registered_collections = dict(by_size)
        return True

    def _assign_work_unit(self, node):
        name = node.gateway.id
        beyond, mixed = _beside(name, self.numnodes), self.numnodes <= CORES
        scope = next((scope for scope in self.workqueue if mixed or waits(scope) == beyond), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)
        elif beyond:
            node.shutdown()
        else:
            super()._assign_work_unit(node)

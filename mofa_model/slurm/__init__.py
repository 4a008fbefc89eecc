"""What Slurm's commands print, as records: nodes, runs of jobs, events of nodes.

May import: files, errors, records. Imported by: identity, manifest, verbs, and the operator's
`observe.slurm`.

    read(outputs)      SlurmRecords of saved outputs: sinfo, scontrol show node, sacct,
                       sacctmgr show event; text in any of their forms, and JSON, of several
                       versions
    ask(since)         the same from the commands on the PATH
    hosts              gpu[01-03,7] as names
"""

from mofa_model.slurm.ask import ask
from mofa_model.slurm.hosts import hosts_of
from mofa_model.slurm.printed import read
from mofa_model.slurm.slurm_records import NodeEvent, SlurmNode, SlurmRecords, SlurmRun

__all__ = [
    "NodeEvent",
    "SlurmNode",
    "SlurmRecords",
    "SlurmRun",
    "ask",
    "hosts_of",
    "read",
]

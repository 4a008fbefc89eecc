"""Profiler traces in, a layer of constants out: what `mofa trace calibrate` writes.

The file has the form of presets/constants.toml, so `MOFA_CONSTANTS=FILE` lets every verb and the
operator use it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mofa_lab.traces.learn import Finding
from mofa_lab.traces.pool import pooled
from mofa_lab.traces.predict import TracedRun
from mofa_model import presets
from mofa_model.calibrate.constants import FreeConstant, WrittenConstant, as_toml, significant

NEGLIGIBLE: Final = 1e-4
"""A scatter below this is not worth stating. [1]"""
HEADER: Final = """\
# Made by `mofa trace calibrate` from profiler traces: what kernels, links and the host reached in them.
# Let it hold with MOFA_CONSTANTS=THIS_FILE; the layers are those of presets/constants.toml.
"""  # noqa: E501


def constants_of(sources: Sequence[TracedRun], stack: str) -> tuple[tuple[Finding, ...], str]:
    """Constants that the traced runs of one stack say, and the text of the file that holds them."""
    findings = pooled(sources)
    device = presets.device_class(sources[0].layout.cluster.device.name)
    section = f"stack.{stack}.device.{device}"
    return findings, as_toml([_written(finding, section, sources) for finding in findings], HEADER)


def _written(finding: Finding, section: str, sources: Sequence[TracedRun]) -> WrittenConstant:
    ranks = sum(len(source.steps) for source in sources)
    source = (
        f"{finding.samples} samples in traces of {ranks} ranks, {len(sources)} runs: {finding.what}"
    )
    value = significant(finding.value)
    entry = FreeConstant(
        section=section, path=finding.path, prior=value, spread=0.0, factor=False, source=source
    )
    scatter = significant(finding.scatter, 2) if finding.scatter > NEGLIGIBLE else 0.0
    return WrittenConstant(entry=entry, value=value, scatter=scatter)

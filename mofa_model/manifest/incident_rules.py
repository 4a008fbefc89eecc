"""What a ClusterProfile says of incidents: which XIDs mean what here, how short an outage is none, and what somebody overruled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from mofa_model.manifest.fields import Part
from mofa_model.spec.incident_causes import CAUSES, SHORTEST_OUTAGE
from mofa_model.spec.xids import XidMeaning

IncidentId: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=360,
        pattern=r"^(node|domain|job)/[A-Za-z0-9._/:-]+@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
    ),
    Field(examples=["node/gpu-17@2026-01-31T09:30:00Z"]),
]
"""An incident, as `mofa incidents` prints it: of what, its name, and when it began."""
XidNumber: TypeAlias = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4, pattern=r"^[1-9][0-9]*$"),
    Field(examples=["94"]),
]
"""Number of an XID."""

if TYPE_CHECKING:
    CauseWord: TypeAlias = str
    XidWord: TypeAlias = str
else:
    CauseWord = Literal[tuple(CAUSES)]
    XidWord = Literal[tuple(one.value for one in XidMeaning)]


class IncidentRules(Part):
    """What counts as a failure here, where that differs from what is usual."""

    xids: Annotated[dict[XidNumber, XidWord], Field(max_length=128, examples=[{"94": "note"}])] = (
        Field(default_factory=dict)
    )
    """What XIDs mean here, by number: hardware counts as a failure, program and note do not; clean-up is told of any program
    that ends. One that is not listed means what NVIDIA says of it."""
    shortest_outage_seconds: Annotated[int, Field(ge=30, le=3600, examples=[300])] = SHORTEST_OUTAGE
    """How long a node has to be not ready, on the same boot, for it to be a failure; less is a flap."""
    overruled: Annotated[
        dict[IncidentId, CauseWord],
        Field(max_length=256, examples=[{"node/gpu-17@2026-01-31T09:30:00Z": "planned-drain"}]),
    ] = Field(default_factory=dict)
    """Incidents whose cause somebody knows better, by the id that mofa incidents prints; none = it was no failure."""

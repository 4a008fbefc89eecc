"""State space blocks: Mamba-2, whose heads carry a matrix from chunk to chunk, and Mamba-1, whose
channels carry a vector.
"""

from __future__ import annotations

from typing import ClassVar

from mofa_model.blocks.block import (
    ALL,
    Block,
    ContextMessages,
    Core,
    Cut,
    Elementwise,
    Projection,
    SavedTensor,
)
from mofa_model.blocks.softmax import LAST
from mofa_model.checks import whole
from mofa_model.records import dataclass
from mofa_model.units import Count, Numeric


@dataclass(frozen=True, kw_only=True)
class StateSpace(Block):
    """Mamba-2: a short convolution, a scan by chunks, and a gated norm. Source: Dao and Gu 2024."""

    word: ClassVar = "state_space"
    norm_offloaded_with: ClassVar = "qkv_linear"
    residual_offloaded_with: ClassVar = "qkv_linear"

    heads: Numeric
    """Heads of the state."""
    head_dim: Numeric
    """Width of one head."""
    state: Numeric
    """Rows of a head's state."""
    groups: Numeric = 1
    """Groups of heads that share what goes into and comes out of the state."""
    kernel: Numeric = 4
    """Tokens that the convolution spans."""
    chunk: Numeric = 256
    """Tokens that are worked off at once."""
    bias: bool = False
    """True where the projections have biases."""
    kernel_bias: bool = True
    """True where the convolution has one."""
    norm: bool = True
    """True where the output passes a norm of its own."""

    def __post_init__(self) -> None:
        whole(heads=self.heads, head_dim=self.head_dim, state=self.state, groups=self.groups)
        whole(kernel=self.kernel, chunk=self.chunk)

    @property
    def inner(self) -> Numeric:
        """Width of all heads. [1]"""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> Numeric:
        """Channels of the convolution. [1]"""
        return self.inner + 2 * self.groups * self.state

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Gate, input, both sides of the state and steps in one; and the output."""
        wide = self.inner + self.convolved + self.heads
        return (
            Projection(n=wide, k=hidden, bias=self.bias, linears=(("in", wide),)),
            Projection(
                n=hidden, k=self.inner, cut=Cut.INPUT, bias=self.bias, linears=(("out", hidden),)
            ),
        )

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """The convolution; decay, skip and step of each head; the norm."""
        kernel = self.convolved * (self.kernel + (1 if self.kernel_bias else 0))
        return kernel + 3 * self.heads + (self.inner if self.norm else 0)

    def cores(self) -> tuple[Core, ...]:
        """Inside a chunk scores of its tokens and their values; into the state and out of it.
        Source: state space duality.
        """
        scores = self.groups * self.state / self.heads  # one table for a group of heads
        return (
            Core(heads=self.heads, width=scores + self.head_dim, fixed=self.chunk),
            Core(heads=self.heads, width=2 * self.head_dim, fixed=self.state),
        )

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:
        """The convolution and the reads of both scans; output, gate and norm. Source: counted on
        fused kernels.
        """
        return (
            Elementwise(width=self.convolved, passes=4.0, cast=hidden),
            Elementwise(width=self.inner, passes=4.0),
        )

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """What the first projection hands over, the scan's output, and what the last one takes.
        Source: mamba_ssm's kernel, which computes convolution and states again in its
        backward pass.
        """
        return (
            SavedTensor(
                elements=self.inner + self.convolved + self.heads,
                dropped_by=frozenset({ALL}),
                halved=True,
            ),
            SavedTensor(elements=self.inner, dropped_by=frozenset({ALL})),
            SavedTensor(elements=self.inner, **LAST),
        )

    def context_messages(self) -> ContextMessages:
        """A rank hands the state of each head to the next, or an all-to-all moves what goes in and
        comes out.
        """
        return ContextMessages(
            all_to_all_elements=2 * self.inner + self.convolved + self.heads,
            state_elements=self.inner * self.state,
        )

    def split(self) -> tuple[Count, ...]:
        """Heads and groups."""
        return (self.heads, self.groups)

    def all_to_all_heads(self) -> Count:
        """Heads."""
        return self.heads


@dataclass(frozen=True, kw_only=True)
class SelectiveScan(Block):
    """Mamba-1: every channel has a state and a step of its own. Source: Gu and Dao 2023."""

    word: ClassVar = "selective_scan"
    norm_offloaded_with: ClassVar = "qkv_linear"
    residual_offloaded_with: ClassVar = "qkv_linear"

    inner: Numeric
    """Channels."""
    state: Numeric
    """Numbers in a channel's state."""
    step_rank: Numeric
    """Width through which steps are projected."""
    kernel: Numeric = 4
    """Tokens that the convolution spans."""
    norms: bool = False
    """True where steps and both sides of the state pass norms (Jamba)."""

    def __post_init__(self) -> None:
        whole(inner=self.inner, state=self.state, step_rank=self.step_rank, kernel=self.kernel)

    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Input and gate; steps and both sides of the state; steps of every channel; output."""
        sides = self.step_rank + 2 * self.state
        return (
            Projection(n=2 * self.inner, k=hidden, linears=(("in", 2 * self.inner),)),
            Projection(n=sides, k=self.inner, cut=Cut.INPUT, linears=(("x", sides),)),
            Projection(n=self.inner, k=self.step_rank, bias=True),
            Projection(n=hidden, k=self.inner, cut=Cut.INPUT, linears=(("out", hidden),)),
        )

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """The convolution with its bias, decays, skips, and norms."""
        norms = self.step_rank + 2 * self.state if self.norms else 0
        return self.inner * (self.kernel + 1) + self.inner * (self.state + 1) + norms

    def cores(self) -> tuple[Core, ...]:
        """The scan: decay, input and output of every number of the state, 6 FLOPs.

        Leaves out: that it runs on no tensor core; its reads and writes of memory take longer.
        """
        return (Core(heads=self.inner, width=3, fixed=self.state),)

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:
        """Convolution, scan and gate. Source: counted on fused kernels."""
        return (Elementwise(width=self.inner, passes=9.0, cast=hidden),)

    def gathers(self) -> Count:
        """Tensor-parallel collectives: one at each end, and a sum of the scan's inputs over
        ranks. [1]
        """
        return 3.0

    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:  # noqa: ARG002
        """Input and gate, input and steps of the scan, its output. Source: mamba_ssm's kernel."""
        return (
            SavedTensor(elements=2 * self.inner, dropped_by=frozenset({ALL}), halved=True),
            SavedTensor(elements=2 * self.inner + 2 * self.state, dropped_by=frozenset({ALL})),
            SavedTensor(elements=self.inner, **LAST),
        )

    def context_messages(self) -> ContextMessages:
        """A rank hands its state to the next, or an all-to-all moves inputs and outputs."""
        return ContextMessages(
            all_to_all_elements=3 * self.inner, state_elements=self.inner * self.state
        )

    def split(self) -> tuple[Count, ...]:
        """Channels."""
        return (self.inner,)

    def all_to_all_heads(self) -> Count:
        """Channels."""
        return self.inner

"""What every block of a layer says of itself; the estimate prices any block from this, and knows
none by its kind.

All of it is for one token of one layer. `hidden` is the width of the residual stream. Blocks make
layers, behind norms beside the residual stream; embedding and head stand around them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import ClassVar, Final

from mofa_model.checks import not_negative, whole
from mofa_model.records import Category, dataclass
from mofa_model.units import Count, Numeric, Ratio

NOTHING: Final = frozenset[str]()
"""No module."""
EACH: Final = "per_op"
"""Recomputation of every second matrix product and of all that is cheap."""
ALL: Final = "all_but_attention_output"
"""Recomputation of everything but the inputs of a layer's blocks and the output of attention."""


class Rows(Category):
    """Which tokens a matrix product sees."""

    TOKENS = "tokens"  # all of the device, weights shared out by tensor parallelism
    ROUTED = "routed"  # those that were sent to an expert, shared out by expert parallelism
    SENT = "sent"  # those that the device sends itself, with whole weights, in the head's precision


class Cut(Category):
    """What of a matrix its ranks share out."""

    OUTPUT = "output"
    INPUT = "input"
    NOTHING = "nothing"


class Ranks(Category):
    """Who shares a stored tensor."""

    STREAM = "stream"  # tensor parallelism, where the residual stream is sequence-parallel
    TENSOR = "tensor"  # tensor parallelism, always
    EXPERT = "expert"  # tensor parallelism inside experts
    NOBODY = "nobody"


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A matrix that tokens are multiplied with."""

    n: Count
    """Output width."""
    k: Count
    """Contracted width."""
    cut: Cut = Cut.OUTPUT
    """What of it is shared out."""
    rows: Rows = Rows.TOKENS
    """Which tokens it sees."""
    bias: bool = False
    """Whether a number is added to each output."""
    times: Count | None = None
    """How often such a matrix stands in the block, one after the other; None = once."""
    seen: Ratio | None = None
    """Share of the tokens that pass it; None = all do."""
    linears: tuple[tuple[str, Count], ...] = ()
    """Linear layers that it holds side by side, each with its output width; empty where adapters
    never stand beside it."""
    recomputed_by: frozenset[str] = NOTHING
    """Modules whose recomputation runs it again beyond those of the block."""

    @property
    def branches(self) -> int:
        """Linear layers that it holds. [1]"""
        return len(self.linears) or 1

    @property
    def weights(self) -> Count:
        """Its parameters without the bias. [1]"""
        return self.n * self.k if self.times is None else self.n * self.k * self.times

    @property
    def parameters(self) -> Count:
        """All its parameters, the bias included. [1]"""
        return (
            self.weights
            if not self.bias
            else self.weights + self.n * (1 if self.times is None else self.times)
        )


@dataclass(frozen=True, kw_only=True)
class Core:
    """Work of tokens on each other, without weights: `2 seen heads width` FLOPs a token."""

    heads: Count
    """Heads, shared out by tensor parallelism."""
    width: Count
    """What a head contracts for each token seen, on both ways: of softmax attention key and value
    width."""
    window: Count | None = None
    """Tokens seen at most, the last ones or the best; None = all before."""
    fixed: Count | None = None
    """Tokens of a chunk, or rows of a state, that are met however long the sequence is; None = they
    follow it."""
    times: Count | None = None
    """How often it is done in the block; None = once."""
    scored: bool = False
    """Whether attention that is not fused moves a score for each through memory."""


@dataclass(frozen=True, kw_only=True)
class SavedTensor:
    """A tensor that waits for the backward pass."""

    elements: Count
    """For each token; of scores for each head."""
    ranks: Ranks = Ranks.TENSOR
    """Who shares it."""
    dropped_by: frozenset[str] = NOTHING
    """Modules whose recomputation drops it."""
    offloaded_by: Mapping[str, Ratio] = field(default_factory=dict)
    """Share of it that goes to the host with the inputs of each of these modules."""
    product_input: bool = False
    """Whether it is input of a matrix product: in low precision it is kept narrow."""
    readers: frozenset[str] = NOTHING
    """The only linear layers that need it: it is not kept where none of them is trained."""
    narrowed_by: frozenset[str] = NOTHING
    """Modules that start from it: recomputed in low precision, they leave it narrow."""
    halved: bool = False
    """Whether `per_op` keeps half of it, as half of two equal products."""
    gradient_alive: bool = False
    """Whether the backward pass holds its gradient together with those of other such tensors."""
    routed: bool = False
    """Whether it is there for every token that an expert got, and runs in chunks."""
    logit_width: bool = False
    """Whether it is as wide as logits."""
    scored: bool = False
    """Whether it is row statistics of attention: one for each head, or every score without
    fusion."""
    dropout_mask: bool = False
    """Whether it is the mask of a dropout: nothing without one."""
    unfused: bool = False
    """Whether it is kept only between elementwise kernels that are not fused."""
    short_lived: bool = False
    """Whether it is gone before the backward pass, which makes its gradient all the same."""
    upcast: bool = False
    """Whether it is the part by which fp32 is wider than activations."""


@dataclass(frozen=True, kw_only=True)
class Elementwise:
    """A tensor that is read and written without a matrix product."""

    width: Count
    """Its elements a token, shared by those who share the weights."""
    passes: Count
    """Reads and writes of it."""
    cast: Count = 0.0
    """Elements a token that are quantised in low precision beside its own."""
    sorted: Count | None = None
    """Elements a token that are put in the order of experts and back; None where every token
    passes."""


@dataclass(frozen=True, kw_only=True)
class ContextMessages:
    """What context-parallel ranks send each other, shared by tensor parallelism."""

    ring_elements: Count = 0.0
    """Elements a token that go around a ring: keys and values."""
    all_to_all_elements: Count = 0.0
    """Elements a token that an all-to-all moves beside the former: queries and outputs."""
    unsplit_elements: Count | None = None
    """Elements a token that go around whole, on every tensor-parallel rank; None = nothing does."""
    state_elements: Count | None = None
    """Elements of a state that ranks hand on however many tokens they have; None = there is
    none."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Tokens on their way to experts and back."""

    top_k: Count
    """Experts that a token is sent to."""
    count: Count
    """Experts."""
    imbalance: Ratio
    """Load of the fullest rank against the mean, over layers and micro-batches on the mean."""
    spread: Ratio
    """Standard deviation of that load."""
    node_limit: Count
    """Nodes that the experts of one token may lie on; 0 = any."""
    width: Count | None = None
    """Width of a token on its way; None = that of the stream."""


@dataclass(frozen=True)
class RecomputedWork:
    """The shares of a block's products and elementwise work that a recomputed module runs again."""

    linear: Ratio
    elementwise: Ratio
    exchange: bool = False


@dataclass(frozen=True, kw_only=True)
class Block(ABC):
    """A part of a layer with a norm before it and the residual stream around it."""

    word: ClassVar[str]
    """As presets call it."""
    norm_before: ClassVar[int] = 1
    """Norms of the stream before it."""
    stream_passes: ClassVar[float] = 0.0
    """Reads and writes of a stream-wide tensor that tensor parallelism shares out: rotary position,
    heads put in order."""
    norm_offloaded_with: ClassVar[str] = ""
    """Module with whose inputs the output of the norm before the block goes to the host."""
    residual_offloaded_with: ClassVar[str] = ""
    """Module with whose inputs the input of that norm goes to the host. A norm that is fused with
    the product behind it has no input of its own."""
    recomputed_work: ClassVar[Mapping[str, RecomputedWork]] = {}
    """For each module that can be recomputed, what of the block it runs again."""

    @property
    def variant(self) -> str:
        """The word for this block, or for its variant, in the entries of trainers."""
        return self.word

    @property
    def name(self) -> str:
        """What tables call the block."""
        return self.variant.replace("_", " ")

    @property
    def own_tokens(self) -> Count | None:
        """Tokens per sequence of the block, if they are not the sequence's own; else None. [1]"""
        return None

    @property
    def launches(self) -> Count:
        """Kernels of its forward pass beyond those of plain attention, or of plain experts. [1]"""
        return 0.0

    @property
    def heads_text(self) -> str:
        """The block's heads as tables write them; empty where it has none."""
        return ""

    @abstractmethod
    def products(self, hidden: Count) -> tuple[Projection, ...]:
        """Its matrices, in order of the forward pass."""

    @abstractmethod
    def saved_tensors(self, hidden: Count) -> tuple[SavedTensor, ...]:
        """What it keeps for its backward pass, beside the residual stream and the norms."""

    def vectors(self, hidden: Count) -> Count:  # noqa: ARG002
        """Parameters that belong to no matrix: norms inside, convolutions, decays. [1]"""
        return 0

    def cores(self) -> tuple[Core, ...]:
        """Work of tokens on each other: attention, or a recurrence."""
        return ()

    def elementwise(self, hidden: Count) -> tuple[Elementwise, ...]:  # noqa: ARG002
        """Work that only moves memory, beside norms and stream."""
        return ()

    def gathers(self) -> Count:
        """Tensor-parallel all-gathers and reduce-scatters in its forward pass. [1]"""
        return 2.0

    def context_messages(self) -> ContextMessages | None:
        """What context parallelism has to send; None where a token needs no other."""
        return None

    def exchange(self) -> Exchange | None:
        """What expert parallelism has to send; None where every token passes."""
        return None

    def split(self) -> tuple[Count, ...]:
        """Numbers that tensor parallelism has to divide."""
        return ()

    def split_inside(self) -> tuple[Count, ...]:
        """Numbers that tensor parallelism inside experts has to divide."""
        return ()

    def all_to_all_heads(self) -> Count | None:
        """What an all-to-all over context-parallel ranks has to divide; None where nothing."""
        return None

    def linears(self, hidden: Count) -> tuple[str, ...]:
        """Names of its linear layers beside which an adapter may stand."""
        return tuple(name for product in self.products(hidden) for name, _ in product.linears)

    def reads_stream(self, hidden: Count) -> frozenset[str]:
        """Linear layers that read the norm before the block. Frozen ones do not need it kept."""
        inner_readers = {name for tensor in self.saved_tensors(hidden) for name in tensor.readers}
        inputs = (product for product in self.products(hidden) if product.cut is not Cut.INPUT)
        return frozenset(name for product in inputs for name, _ in product.linears) - inner_readers

    def matrices(self, hidden: Count, *, active: bool = False) -> Numeric:
        """Parameters of all its matrices, or of those that one token is multiplied with. [1]"""
        products = self.products(hidden)
        if not active:
            return self._summed_over_experts(
                ((product.rows, product.weights) for product in products), active=active
            )
        sizes = (
            (
                product.rows,
                product.weights if product.seen is None else product.weights * product.seen,
            )
            for product in products
        )
        return self._summed_over_experts(sizes, active=active)

    def parameters(self, hidden: Count, *, active: bool = False) -> Numeric:
        """All its parameters, or those that one token meets. [1]"""
        matrices = self._summed_over_experts(
            ((product.rows, product.parameters) for product in self.products(hidden)), active=active
        )
        return matrices + self.vectors(hidden)

    def _summed_over_experts(
        self, sizes: Iterable[tuple[Rows, Numeric]], *, active: bool
    ) -> Numeric:
        """Sum of sizes; an expert's counts for every expert, or those of a token if `active`."""
        exchange = self.exchange()
        experts = 1 if exchange is None else exchange.top_k if active else exchange.count
        return sum(experts * size if rows is Rows.ROUTED else size for rows, size in sizes)

    def placement_cost(self, hidden: Count) -> Numeric:
        """Cost by which layers go to stages: weights that one token is multiplied with. [1]"""
        return self.matrices(hidden, active=True)


STREAM_PASSES: Final = 5.0
"""Reads and writes of a stream-wide tensor by a norm and the residual around its block."""


@dataclass(frozen=True)
class Layer:
    """Blocks in order, with their norms."""

    blocks: tuple[Block, ...]
    """What a token passes, in order."""
    norms: Numeric | None = None
    """Norms; None = one before each block that has one there."""
    norm_vectors: Numeric = 1
    """Parameters of a norm, each as wide as the stream: 1 a weight, 2 with a bias, 0 none."""

    def parameters(self, hidden: Count, *, active: bool = False) -> Count:
        """All parameters, or those that one token meets. [1]"""
        blocks = sum(block.parameters(hidden, active=active) for block in self.blocks)
        return blocks + self.normed * self.norm_vectors * hidden

    def matrices(self, hidden: Count, *, active: bool = False) -> Count:
        """Parameters of all matrices, or of those that one token is multiplied with. [1]"""
        return sum(block.matrices(hidden, active=active) for block in self.blocks)

    @property
    def normed(self) -> Numeric:
        """How many norms it has. [1]"""
        return sum(block.norm_before for block in self.blocks) if self.norms is None else self.norms

    @property
    def name(self) -> str:
        """Its blocks in words."""
        return " + ".join(block.name for block in self.blocks)

    @cached_property
    def routed(self) -> bool:
        """True where tokens are sent to experts."""
        return any(block.exchange() is not None for block in self.blocks)

    def stream(self, hidden: Count) -> tuple[SavedTensor, ...]:
        """Inputs and outputs of the norms, and masks of the dropouts behind the blocks, Table 2:
        each 2 sbh a norm.
        """
        share = 1.0 / len(self.blocks)
        residuals = Counter(block.residual_offloaded_with for block in self.blocks)
        outputs = Counter(block.norm_offloaded_with for block in self.blocks)
        wide = self.normed * hidden
        return (
            SavedTensor(
                elements=wide,
                ranks=Ranks.STREAM,
                offloaded_by={name: share * n for name, n in residuals.items()},
            ),
            SavedTensor(
                elements=wide,
                ranks=Ranks.STREAM,
                dropped_by=frozenset({"layernorm", EACH, ALL}),
                product_input=True,
                offloaded_by={name: share * n for name, n in outputs.items()},
            ),
            SavedTensor(
                elements=wide, ranks=Ranks.STREAM, dropped_by=frozenset({ALL}), dropout_mask=True
            ),
            SavedTensor(elements=wide, ranks=Ranks.STREAM, unfused=True, upcast=True),
            # The gradient of a norm's weight needs what it is multiplied with.
            SavedTensor(
                elements=wide,
                ranks=Ranks.STREAM,
                dropped_by=frozenset({"layernorm", EACH, ALL}),
                unfused=True,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """The embedding, and whether the head is its transpose."""

    vocabulary: Numeric
    """Rows, padding included."""
    tied: bool = False
    """True where the head is the embedding transposed."""
    positions: Numeric = 0
    """Learned positions: further rows, of which no time and no memory is counted."""
    norm_vectors: Numeric = 1
    """Parameters of the last norm, each as wide as the stream: 1 a weight, 2 with a bias, 0
    none."""
    head_bias: bool = False
    """True where the head adds a number to each score."""

    def __post_init__(self) -> None:
        whole(vocabulary=self.vocabulary)
        not_negative(positions=self.positions)

    def rows(self, hidden: Count) -> Count:
        """Parameters of the embedding, V h, Table 2. [1]"""
        return self.vocabulary * hidden

    def head(self, hidden: Count) -> Count:
        """The head's own matrix, V h; none where it is the embedding. [1]"""
        return 0 if self.tied else self.vocabulary * hidden

    def vectors(self, hidden: Count) -> Count:
        """Learned positions, the last norm, and the head's bias. [1]"""
        return (self.positions + self.norm_vectors) * hidden + self.head_bias * self.vocabulary

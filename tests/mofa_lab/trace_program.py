"""What the host of a rank launches in a step of training, in order."""

from __future__ import annotations

from trace_kernels import Kernels
from trace_setup import Work, schedule


class Pass(Kernels):
    """The program of one rank in one step."""

    def program(self):
        for kind, chunk, mb in schedule(self.s.pp, self.s.micro_batches, self.s.vpp)[self.p]:
            stage = chunk * self.s.pp + self.p
            last = mb == self.s.micro_batches - 1
            name = f"{'forward' if kind == 'F' else 'backward'} {mb} chunk {chunk}"
            if kind == "B":
                yield ("thread", 2)
            yield ("mark", name)
            yield from self.forward(stage, mb) if kind == "F" else self.backward(stage, mb, last)
            yield ("end", name)
            if kind == "B":
                yield ("thread", 1)
        yield ("mark", "optimizer")
        yield from self.update()
        yield ("end", "optimizer")

    # passes

    def forward(self, stage, mb):
        s = self.s
        if stage > 0:
            yield from self.receive("F", stage - 1, stage, mb)
        else:
            yield self.moved(
                "embedding_kernel", "aten::embedding", 2.0 * 2 * self.tokens * s.hidden / s.tp
            )
        for _ in range(s.layers // (s.pp * s.vpp)):
            yield from self.layer_forward()
        if stage == s.pp * s.vpp - 1:
            yield from self.head(1.0)
        else:
            yield from self.send("F", stage, stage + 1, mb)

    def backward(self, stage, mb, last):
        s = self.s
        if stage == s.pp * s.vpp - 1:
            yield from self.head(2.0)
        else:
            yield from self.receive("B", stage + 1, stage, mb)
        for layer in range(s.layers // (s.pp * s.vpp)):
            yield from self.layer_backward()
            if last and s.dp > 1:
                yield from self.reduce(
                    ("layer", stage, layer), self.layer_parameters() - self.routed()
                )
                if self.routed() and s.dp > s.ep:
                    yield from self.data(
                        "reduce_scatter", ("experts", stage, layer), self.routed(), copies=True
                    )
        if stage == 0:
            if last and s.dp > 1:
                yield from self.reduce(("embedding",), s.vocabulary * s.hidden / s.tp)
        else:
            yield from self.send("B", stage, stage - 1, mb)

    def layer_forward(self):
        s, h = self.s, self.s.hidden
        qkv, out = (s.heads + 2 * s.kv_heads) * s.head_dim // s.tp, s.heads * s.head_dim // s.tp
        yield self.norm(5.0)
        yield from self.tensor("all_gather")
        yield self.gemm(self.tokens, qkv, h)
        yield self.moved("rotary_kernel", "rotary", self.tokens * h * 2 * 3.0 / s.tp)
        yield self.flash(1.0)
        yield self.gemm(self.tokens, h, out)
        yield from self.tensor("reduce_scatter")
        yield self.norm(5.0)
        yield from self.feed_forward()
        yield self.moved("add_kernel", "aten::add", self.tokens * h * 2 * 3.0 / s.tp)

    def feed_forward(self):
        s, h = self.s, self.s.hidden
        if s.experts:
            yield from self.experts_forward()
            return
        f = s.ffn // s.tp
        yield from self.tensor("all_gather")
        yield self.gemm(self.tokens, 2 * f, h)
        yield self.moved("swiglu_kernel", "swiglu", self.tokens * f * 2 * 3.5)
        yield self.gemm(self.tokens, h, f)
        yield from self.tensor("reduce_scatter")

    def layer_backward(self):
        s, h = self.s, self.s.hidden
        qkv, out = (s.heads + 2 * s.kv_heads) * s.head_dim // s.tp, s.heads * s.head_dim // s.tp
        yield self.moved("add_kernel", "aten::add", self.tokens * h * 2 * 6.0 / s.tp)
        if s.experts:
            yield from self.experts_backward()
        else:
            f = s.ffn // s.tp
            yield from self.tensor("all_gather")
            yield self.gemm(self.tokens, f, h)
            yield self.gemm(h, f, self.tokens)
            yield self.moved("swiglu_kernel", "swiglu_backward", self.tokens * f * 2 * 7.0)
            yield self.gemm(self.tokens, h, 2 * f)
            yield from self.tensor("reduce_scatter", wait=False)
            yield self.gemm(2 * f, h, self.tokens)
            yield from self.join(self.TENSOR)
        yield self.norm(10.0)
        yield from self.tensor("all_gather")
        yield self.gemm(self.tokens, out, h)
        yield self.gemm(h, out, self.tokens)
        yield self.flash(2.5)
        yield self.moved("rotary_kernel", "rotary", self.tokens * h * 2 * 6.0 / s.tp)
        yield self.gemm(self.tokens, h, qkv)
        yield from self.tensor("reduce_scatter", wait=False)
        yield self.gemm(qkv, h, self.tokens)
        yield from self.join(self.TENSOR)
        yield self.norm(10.0)
        yield self.moved("accumulate_kernel", "aten::add_", self.layer_parameters() * 10.0)

    def experts_forward(self):
        s, h = self.s, self.s.hidden
        local, each, f = (
            s.experts // s.ep,
            self.tokens // s.tp * s.top_k * s.ep // s.experts,
            s.expert_ffn,
        )
        yield self.gemm(self.tokens // s.tp, s.experts, h)
        yield self.moved(
            "permute_kernel", "permute", self.tokens // s.tp * s.top_k * 2 * 2 * h * 1.5
        )
        yield from self.exchange()
        yield self.grouped(local, each, 2 * f, h)
        yield self.moved("swiglu_kernel", "swiglu", self.tokens // s.tp * s.top_k * 2 * 4 * f)
        yield self.grouped(local, each, h, f)
        yield from self.exchange()
        yield self.moved(
            "unpermute_kernel", "unpermute", self.tokens // s.tp * s.top_k * 2 * 2 * h * 1.5
        )

    def experts_backward(self):
        s, h = self.s, self.s.hidden
        local, each, f = (
            s.experts // s.ep,
            self.tokens // s.tp * s.top_k * s.ep // s.experts,
            s.expert_ffn,
        )
        yield self.moved(
            "unpermute_kernel", "unpermute", self.tokens // s.tp * s.top_k * 2 * 4 * h * 1.5
        )
        yield from self.exchange()
        for _ in range(2):
            yield self.grouped(local, each, h, f)
        yield self.moved(
            "swiglu_kernel", "swiglu_backward", self.tokens // s.tp * s.top_k * 2 * 8 * f
        )
        for _ in range(2):
            yield self.grouped(local, each, 2 * f, h)
        yield from self.exchange()
        yield self.moved(
            "permute_kernel", "permute", self.tokens // s.tp * s.top_k * 2 * 4 * h * 1.5
        )
        for _ in range(2):
            yield self.gemm(self.tokens // s.tp, s.experts, h)

    def head(self, factor):
        s = self.s
        yield self.norm(2.0 * factor)
        for _ in range(int(factor)):
            yield self.gemm(self.tokens, s.vocabulary // s.tp, s.hidden)
        yield self.moved(
            "cross_entropy_kernel", "loss", self.tokens * s.vocabulary / s.tp * 8.0 * factor
        )
        if factor > 1:
            yield self.moved(
                "accumulate_kernel", "aten::add_", s.vocabulary * s.hidden / s.tp * 10.0
            )
            if s.dp > 1 and self.s.pp >= 1:
                return

    def update(self):
        s = self.s
        outer = (self.p == 0) + (self.p == s.pp - 1)
        routed = s.layers // s.pp * self.routed()
        held = (
            s.layers // s.pp * self.layer_parameters()
            - routed
            + outer * s.vocabulary * s.hidden / s.tp
        )
        if s.dp > 1:
            if self.p == s.pp - 1:
                yield from self.reduce(("head",), s.vocabulary * s.hidden / s.tp)
            yield from self.join(self.DATA)
        seconds = (held / s.dp + routed * s.ep / s.dp) * 30.0 / (self.k.memory * self.k.update)
        for _ in range(4):
            yield (
                "launch",
                self.COMPUTE,
                Work("multi_tensor_apply_kernel<FusedAdam>", "Optimizer.step#Adam", seconds / 4),
            )
        if s.dp > 1:
            yield from self.data("all_gather", ("parameters", self.p), held)
            if routed and s.dp > s.ep:
                yield from self.data("all_gather", ("experts", self.p), routed, copies=True)
            yield from self.join(self.DATA)

    def routed(self):
        s = self.s
        return s.experts / s.ep * 3 * s.hidden * s.expert_ffn if s.experts else 0.0

    def layer_parameters(self):
        s, h = self.s, self.s.hidden
        attention = h * s.head_dim * (2 * s.heads + 2 * s.kv_heads) / s.tp
        if s.experts:
            return attention + h * s.experts + self.routed()
        return attention + 3 * h * s.ffn / s.tp

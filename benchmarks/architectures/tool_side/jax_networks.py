"""Networks of Flax, exported by jax2onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax2onnx import to_onnx

from .answering import Request, answer_all, require_use, shape_of


class Mlp(nnx.Module):
    """Layers with Gelu and layer normalisation."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.last = nnx.Linear(16, 64, rngs=rngs), nnx.Linear(64, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(64, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(self.norm(nnx.gelu(self.first(x))))


class Convolutional(nnx.Module):
    """Convolutions and poolings on images whose channels are last."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), strides=(2, 2), rngs=rngs)
        self.last = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        pooled = nnx.avg_pool(nnx.relu(self.first(x)), window_shape=(2, 2), strides=(2, 2))
        return self.last(jnp.mean(nnx.swish(self.second(pooled)), axis=(1, 2)))


class Residual(nnx.Module):
    """Two residual blocks with group normalisation."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.layers = nnx.List([nnx.Conv(8, 8, (3, 3), rngs=rngs) for _ in range(4)])
        self.norms = nnx.List([nnx.GroupNorm(8, num_groups=4, rngs=rngs) for _ in range(4)])

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in range(2):
            y = nnx.relu(self.norms[2 * block](self.layers[2 * block](x)))
            x = x + self.norms[2 * block + 1](self.layers[2 * block + 1](y))
        return jnp.mean(nnx.relu(x), axis=(1, 2))


class Attention(nnx.Module):
    """Attention with four heads, and a gated feed-forward layer."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
        self.gate, self.up = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(32, 64, rngs=rngs)
        self.down, self.norm = nnx.Linear(64, 32, rngs=rngs), nnx.RMSNorm(32, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm(x))
        return x + self.down(nnx.silu(self.gate(x)) * self.up(x))


class Mixer(nnx.Module):
    """Layers over positions and over channels in turn."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.positions, self.channels = nnx.Linear(16, 16, rngs=rngs), nnx.Linear(24, 24, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + jnp.swapaxes(nnx.gelu(self.positions(jnp.swapaxes(x, 1, 2))), 1, 2)
        return x + nnx.gelu(self.channels(x))


class Recurrence(nnx.Module):
    """A recurrence as a scan over time."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.enter, self.stay = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 16, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        weights, bias = self.stay.kernel[...], self.stay.bias[...]

        def step(state: jax.Array, entry: jax.Array) -> tuple[jax.Array, jax.Array]:
            state = jnp.tanh(entry + state @ weights + bias)
            return state, state

        first = jnp.zeros((x.shape[0], 16), x.dtype)
        return jnp.swapaxes(jax.lax.scan(step, first, jnp.swapaxes(self.enter(x), 0, 1))[1], 0, 1)


def _export(request: Request) -> dict[str, Any]:
    network = globals()[request["architecture"]["model"]](rngs=nnx.Rngs(0))
    model = to_onnx(network, [tuple(shape_of(request, "B"))])
    Path(request["path"]).write_bytes(model.SerializeToString())
    require_use(request)
    return {}


if __name__ == "__main__":
    answer_all(_export)

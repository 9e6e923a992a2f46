"""Small networks of kinds that the libraries lack: for tables, graphs, speech, points, series and states."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class GhostBlock(nn.Module):
    """Of TabNet (Arik and Pfister 2019): a linear layer, batch normalisation and a gate."""

    def __init__(self, wide: int, narrow: int) -> None:
        super().__init__()
        self.linear = nn.Linear(wide, 2 * narrow, bias=False)
        self.normalize = nn.BatchNorm1d(2 * narrow)

    def forward(self, x: Tensor) -> Tensor:
        return functional.glu(self.normalize(self.linear(x)), dim=-1)


def sparsemax(x: Tensor) -> Tensor:
    """The projection onto the simplex (Martins and Astudillo 2016), along the last axis."""
    ordered, _ = torch.sort(x, dim=-1, descending=True)
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    sums = ordered.cumsum(-1) - 1
    support = (ranks * ordered > sums).sum(-1, keepdim=True)
    threshold = sums.gather(-1, support - 1) / support.to(x.dtype)
    return torch.clamp(x - threshold, min=0)


class TabNet(nn.Module):
    """Two steps that attend to features, and a linear head."""

    def __init__(self, features: int = 12, width: int = 8, steps: int = 2) -> None:
        super().__init__()
        self.start = nn.BatchNorm1d(features)
        self.shared = GhostBlock(features, width)
        self.own = nn.ModuleList(GhostBlock(width, width) for _ in range(steps))
        self.attend = nn.ModuleList(nn.Linear(width, features) for _ in range(steps))
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.start(x)
        prior = torch.ones_like(x)
        hidden = self.shared(x)
        total = torch.zeros_like(hidden)
        for attend, own in zip(self.attend, self.own, strict=True):
            mask = sparsemax(attend(hidden) * prior)
            prior = prior * (1.3 - mask)
            hidden = self.shared(mask * x)
            hidden = (hidden + own(hidden)) * math.sqrt(0.5)
            total = total + functional.relu(hidden)
        return self.head(total), prior


class DeepFm(nn.Module):
    """Guo et al. 2017: factorisation machine and perceptron over embeddings."""

    def __init__(self, fields: int = 6, size: int = 30, width: int = 8, numbers: int = 5) -> None:
        super().__init__()
        self.offsets = nn.Parameter(torch.arange(fields) * size, requires_grad=False)
        self.factors = nn.Embedding(fields * size, width)
        self.linear = nn.Embedding(fields * size, 1)
        self.deep = nn.Sequential(
            nn.Linear(fields * width + numbers, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1)
        )

    def forward(self, categories: Tensor, numbers: Tensor) -> Tensor:
        places = categories + self.offsets
        factors = self.factors(places)
        pairs = 0.5 * (factors.sum(1) ** 2 - (factors**2).sum(1)).sum(1, keepdim=True)
        deep = self.deep(torch.cat([factors.flatten(1), numbers], 1))
        return torch.sigmoid(0.1 * pairs + self.linear(places).sum(1) + deep)


class CrossNetwork(nn.Module):
    """Wang et al. 2021 (DCN-V2): products of the input with linear maps of itself."""

    def __init__(self, features: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(features, features) for _ in range(depth))
        self.head = nn.Linear(features, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for layer in self.cross:
            y = x * layer(y) + y
        return self.head(y)


class GraphConvolution(nn.Module):
    """Kipf and Welling 2017: messages along edges, summed by scatter."""

    def __init__(self, width: int = 8, classes: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 16), nn.Linear(16, classes)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        ones = torch.ones(source.shape[0], dtype=nodes.dtype)
        degree = torch.ones(nodes.shape[0], dtype=nodes.dtype).scatter_add(0, target, ones)
        scale = degree.rsqrt()
        weight = (scale[source] * scale[target]).unsqueeze(-1)

        def spread(x: Tensor) -> Tensor:
            messages = x[source] * weight
            index = target.unsqueeze(-1).expand_as(messages)
            return x / degree.unsqueeze(-1) + torch.zeros_like(x).scatter_add(0, index, messages)

        return self.second(spread(functional.relu(self.first(spread(nodes)))))


class GraphAttention(nn.Module):
    """Velickovic et al. 2018, with a dense adjacency."""

    def __init__(self, width: int = 8, heads: int = 2, head: int = 6) -> None:
        super().__init__()
        self.heads, self.head = heads, head
        self.project = nn.Linear(width, heads * head, bias=False)
        self.left, self.right = nn.Parameter(torch.randn(heads, head)), nn.Parameter(torch.randn(heads, head))

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        x = self.project(nodes).view(-1, self.heads, self.head)
        left, right = (x * self.left).sum(-1), (x * self.right).sum(-1)
        scores = functional.leaky_relu(left.unsqueeze(1) + right.unsqueeze(0), 0.2)
        scores = scores.masked_fill((adjacency < 0.5).unsqueeze(-1), -1e9)
        return functional.elu(torch.einsum("ijh,jhd->ihd", scores.softmax(1), x).flatten(1))


class LstmTagger(nn.Module):
    """Two layers of a bidirectional LSTM over embedded tokens."""

    def __init__(self, size: int = 50, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.lstm = nn.LSTM(width, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(tokens))[0]).log_softmax(-1)


class GruForecaster(nn.Module):
    """A GRU whose last state gives a forecast."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.gru = nn.GRU(width, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        states, last = self.gru(series)
        return self.head(last[-1]), states


class ConvLstm(nn.Module):
    """Shi et al. 2015: a cell whose gates are convolutions, over the frames in order."""

    def __init__(self, channels: int = 2, hidden: int = 4) -> None:
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(channels + hidden, 4 * hidden, 3, padding=1)
        self.head = nn.Conv2d(hidden, channels, 1)

    def forward(self, frames: Tensor) -> Tensor:
        batch, steps, _, height, width = frames.shape
        state = memory = torch.zeros(batch, self.hidden, height, width)
        for step in range(steps):
            i, f, o, g = self.gates(torch.cat([frames[:, step], state], 1)).chunk(4, 1)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            state = o.sigmoid() * memory.tanh()
        return self.head(state)


class TemporalConvolution(nn.Module):
    """Bai et al. 2018: causal dilated convolutions with residuals."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=d, padding=2 * d) for d in (1, 2, 4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = functional.relu(layer(x)[..., : x.shape[-1]]) + x
        return x


def _double(a: int, b: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    """Ronneberger et al. 2015, two levels deep."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.bottom = _double(1, 8), _double(8, 12), _double(12, 16)
        self.rise = nn.ConvTranspose2d(16, 12, 2, stride=2)
        self.rise_again = nn.ConvTranspose2d(12, 8, 2, stride=2)
        self.up, self.last = _double(24, 12), _double(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down(x)
        two = self.deep(functional.max_pool2d(one, 2))
        three = self.bottom(functional.max_pool2d(two, 2))
        x = self.up(torch.cat([self.rise(three), two], 1))
        return self.head(self.last(torch.cat([self.rise_again(x), one], 1)))


class QuartzNet(nn.Module):
    """Kriman et al. 2020: separable convolutions over time."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, width, 5, padding=2, groups=width), nn.Conv1d(width, width, 1), nn.BatchNorm1d(width),
            )
            for _ in range(3)
        )  # fmt: skip
        self.head = nn.Conv1d(width, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = functional.relu(block(x) + x)
        return self.head(x).transpose(1, 2).log_softmax(-1)


class DeepSpeech(nn.Module):
    """Amodei et al. 2016: convolutions over spectra, then a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv2d(1, 6, (5, 5), stride=(2, 2), padding=2), nn.BatchNorm2d(6), nn.Hardtanh(0, 6),
            nn.Conv2d(6, 6, (3, 3), stride=(2, 1), padding=1), nn.BatchNorm2d(6), nn.Hardtanh(0, 6),
        )  # fmt: skip
        self.gru = nn.GRU(30, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 12)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = self.convolve(spectrogram).flatten(1, 2).transpose(1, 2)
        return self.head(self.gru(x)[0]).log_softmax(-1)


class Conformer(nn.Module):
    """Gulati et al. 2020: attention and convolution between half-step perceptrons."""

    def __init__(self, width: int = 24, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.feed, self.feed_again = self._perceptron(width), self._perceptron(width)
        self.normalize = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.batch = nn.BatchNorm1d(width)

    @staticmethod
    def _perceptron(width: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def _attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.project(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(width // self.heads)
        return self.join((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))

    def _convolve(self, x: Tensor) -> Tensor:
        y = functional.glu(self.widen(x.transpose(1, 2)), dim=1)
        return self.narrow(functional.silu(self.batch(self.depthwise(y)))).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third, fourth, last = self.normalize
        x = x + 0.5 * self.feed(first(x))
        x = x + self._attend(second(x))
        x = x + self._convolve(third(x))
        return last(x + 0.5 * self.feed_again(fourth(x)))


class Siren(nn.Module):
    """Sitzmann et al. 2020: sines of products."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.sin(6.0 * layer(x))
        return self.layers[-1](x)


class PointNet(nn.Module):
    """Qi et al. 2017: the same perceptron for each point, and the maximum of all."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1))
        self.head = nn.Linear(32, 6)

    def forward(self, points: Tensor) -> Tensor:
        return self.head(self.each(points).amax(-1))


class SubPixel(nn.Module):
    """Shi et al. 2016: super-resolution by rearranged channels, over a bicubic image."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.Tanh(), nn.Conv2d(12, 4, 3, padding=1))

    def forward(self, image: Tensor) -> Tensor:
        smooth = functional.interpolate(image, scale_factor=2.0, mode="bilinear", align_corners=False)
        return smooth + functional.pixel_shuffle(self.layers(image), 2)


class VectorQuantizer(nn.Module):
    """van den Oord et al. 2017: the nearest code of each place, and its distance."""

    def __init__(self, codes: int = 12, width: int = 6) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.Tanh())
        self.codes = nn.Parameter(torch.randn(codes, width))
        self.decode = nn.ConvTranspose2d(width, 3, 4, stride=4)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encode(image).permute(0, 2, 3, 1)
        distance = (x**2).sum(-1, keepdim=True) - 2 * x @ self.codes.T + (self.codes**2).sum(-1)
        chosen = self.codes[distance.argmin(-1)]
        return self.decode(chosen.permute(0, 3, 1, 2)), distance


class MixtureOfExperts(nn.Module):
    """Shazeer et al. 2017: the two best experts of each token, all of them computed."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(0.3 * torch.randn(experts, width, 2 * width))
        self.down = nn.Parameter(0.3 * torch.randn(experts, 2 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        weights, chosen = self.gate(tokens).softmax(-1).topk(2, dim=-1)
        dense = torch.zeros_like(self.gate(tokens)).scatter(-1, chosen, weights)
        hidden = functional.gelu(torch.einsum("tw,ewh->eth", tokens, self.up))
        return torch.einsum("eth,ehw,te->tw", hidden, self.down, dense)


class WaveNet(nn.Module):
    """van den Oord et al. 2016: gated dilated convolutions whose skips are summed."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, width, 1)
        self.filters = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=d) for d in (1, 2, 4))
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in self.filters)
        self.head = nn.Conv1d(width, 10, 1)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.start(sound)
        total = torch.zeros_like(x)
        for layer, skip in zip(self.filters, self.skips, strict=True):
            gate, value = layer(functional.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            hidden = gate.sigmoid() * value.tanh()
            total = total + skip(hidden)
            x = x + hidden
        return self.head(functional.relu(total))


class MaskDecoder(nn.Module):
    """As that of Segment Anything (Kirillov et al. 2023): points as sines of random waves attend to an image."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.waves = nn.Parameter(torch.randn(2, width // 2))
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.normalize = nn.LayerNorm(width)
        self.grow = nn.ConvTranspose2d(width, 8, 2, stride=2)
        self.hyper = nn.Linear(width, 8)

    def _encode(self, points: Tensor) -> Tensor:
        angles = 2 * math.pi * ((2 * points - 1) @ self.waves)
        return torch.cat([angles.sin(), angles.cos()], -1)

    def forward(self, embedding: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        image = embedding.flatten(2).transpose(1, 2)
        tokens = self._encode(points)
        scores = self.query(tokens) @ self.key(image).transpose(1, 2) / math.sqrt(image.shape[-1])
        tokens = self.normalize(tokens + scores.softmax(-1) @ self.value(image))
        large = functional.gelu(self.grow(embedding))
        masks = torch.einsum("bnc,bchw->bnhw", self.hyper(tokens), large)
        return functional.interpolate(masks, size=(32, 32), mode="bilinear", align_corners=False), tokens.mean(-1)


class FlowWarp(nn.Module):
    """Optical flow: an image sampled where a flow points to."""

    def __init__(self) -> None:
        super().__init__()
        self.refine = nn.Conv2d(5, 2, 3, padding=1)

    def forward(self, image: Tensor, flow: Tensor) -> Tensor:
        flow = 0.1 * torch.tanh(flow + self.refine(torch.cat([image, flow], 1)))
        across = torch.linspace(-1, 1, image.shape[-1])
        grid = torch.stack(torch.meshgrid(across, across, indexing="xy"), -1).unsqueeze(0)
        return functional.grid_sample(image, grid + flow.permute(0, 2, 3, 1), align_corners=False)


class StyleBlock(nn.Module):
    """Karras et al. 2019: a constant image whose channels are normalised and scaled by a style."""

    def __init__(self, width: int = 16, channels: int = 8) -> None:
        super().__init__()
        self.map = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 2 * channels))
        self.image = nn.Parameter(torch.randn(1, channels, 4, 4))
        self.convolve, self.color = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, 3, 1)

    def forward(self, noise: Tensor) -> Tensor:
        scale, shift = self.map(noise * (noise.pow(2).mean(1, keepdim=True) + 1e-8).rsqrt()).chunk(2, 1)
        x = functional.instance_norm(self.convolve(self.image.expand(noise.shape[0], -1, -1, -1)))
        x = x * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
        return torch.tanh(self.color(functional.interpolate(x, scale_factor=2.0, mode="nearest")))


class FixedPoint(nn.Module):
    """A filter in integers: products are shifted back, halves are rounded to even, and the result is clipped."""

    def __init__(self, taps: int = 5) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.tensor([3, -7, 21, -5, 2][:taps]), requires_grad=False)

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        centred = samples - 20
        around = functional.pad(centred, (2, 2))
        length = centred.shape[1]
        total = sum(self.taps[k] * around[:, k : k + length] for k in range(self.taps.shape[0]))
        halves = torch.round(total.float() * 0.5)
        return torch.clamp(halves, -200, 200), (total * 8) // 3 % 127


class TopKRouter(nn.Module):
    """The best scores, their places, and what a table has for these."""

    def __init__(self, size: int = 20) -> None:
        super().__init__()
        self.table = nn.Embedding(size, 6)
        self.scale = nn.Linear(size, size)

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, places = self.scale(scores).topk(4, dim=-1)
        return values.softmax(-1), places, (self.table(places) * values.unsqueeze(-1)).sum(1)

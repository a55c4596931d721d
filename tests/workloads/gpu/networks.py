# SPDX-License-Identifier: Apache-2.0
"""Memory curves of training, computed from the networks' layer shapes.

A step allocates each layer's output in the forward pass and frees it in the backward
pass, which holds two gradients at a time; weights, their gradients and the momentum stay.
Shapes are those of the papers: VGG16 (Simonyan and Zisserman 2015, configuration D),
ResNet101 (He et al. 2016), MobileNetV3-Large (Howard et al. 2019), 224 x 224 images,
32-bit floats. A layer takes as long as its multiplications at 9 TFLOP/s (a V100's share of
its 14 in training) or its bytes at 750 GB/s, whichever is more.
"""

from __future__ import annotations

from dataclasses import dataclass

from events import ALLOC, COMPUTE, FREE, Events, make

FLOPS_PER_NS = 9000.0
BYTES_PER_NS = 750.0
FLOAT = 4


@dataclass(frozen=True)
class Layer:
    """One layer: output elements of an image, weights, multiply-adds of an image."""

    outputs: int
    weights: int
    multiplies: int


class Shape:
    """Follows the shape of the data through a network."""

    def __init__(self, side: int = 224, channels: int = 3) -> None:
        self.side, self.channels = side, channels
        self.layers: list[Layer] = []

    def conv(self, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        """A convolution with "same" padding, batch norm and activation in place."""
        self.side = -(-self.side // stride)
        weights = kernel * kernel * self.channels // groups * channels
        area = self.side * self.side
        self.layers.append(Layer(area * channels, weights, area * weights))
        self.channels = channels

    def pool(self) -> None:
        """Halves the side."""
        self.side //= 2
        self.layers.append(Layer(self.side * self.side * self.channels, 0, 0))

    def dense(self, outputs: int) -> None:
        """A fully connected layer on all that is there."""
        inputs = self.side * self.side * self.channels
        self.layers.append(Layer(outputs, inputs * outputs, inputs * outputs))
        self.side, self.channels = 1, outputs


def vgg16() -> list[Layer]:
    """Configuration D: 13 convolutions and 3 fully connected layers."""
    net = Shape()
    for channels, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            net.conv(channels, 3)
        net.pool()
    for outputs in (4096, 4096, 1000):
        net.dense(outputs)
    return net.layers


def resnet101() -> list[Layer]:
    """Bottleneck blocks 3, 4, 23, 3; layers keep what batch norm reads as well."""
    net = Shape()
    net.conv(64, 7, 2)
    net.pool()
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 23, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            inputs = net.channels
            net.conv(width, 1)
            net.conv(width, 3, step)
            net.conv(4 * width, 1)
            if block == 0:
                area, weights = net.side * net.side, inputs * 4 * width
                net.layers.append(Layer(area * 4 * width, weights, area * weights))
    net.layers = [Layer(2 * item.outputs, item.weights, item.multiplies) for item in net.layers]
    net.side = 1
    net.dense(1000)
    return net.layers


def mobilenet_v3() -> list[Layer]:
    """Large: inverted residuals as (kernel, expansion, out, stride, squeeze and excite)."""
    net = Shape()
    net.conv(16, 3, 2)
    rows = (
        (3, 16, 16, 1, 0), (3, 64, 24, 2, 0), (3, 72, 24, 1, 0), (5, 72, 40, 2, 1),
        (5, 120, 40, 1, 1), (5, 120, 40, 1, 1), (3, 240, 80, 2, 0), (3, 200, 80, 1, 0),
        (3, 184, 80, 1, 0), (3, 184, 80, 1, 0), (3, 480, 112, 1, 1), (3, 672, 112, 1, 1),
        (5, 672, 160, 2, 1), (5, 960, 160, 1, 1), (5, 960, 160, 1, 1),
    )  # fmt: skip
    for kernel, expansion, out, stride, squeeze in rows:
        net.conv(expansion, 1)
        net.conv(expansion, kernel, stride, groups=expansion)
        if squeeze:
            weights = 2 * expansion * (expansion // 4)
            net.layers.append(Layer(expansion, weights, weights))
        net.conv(out, 1)
    net.conv(960, 1)
    net.layers = [Layer(2 * item.outputs, item.weights, item.multiplies) for item in net.layers]
    net.side = 1
    net.dense(1280)
    net.dense(1000)
    return net.layers


NETWORKS = {"vgg16": vgg16, "resnet101": resnet101, "mobilenet_v3": mobilenet_v3}


def _forward_ns(layer: Layer, batch: int) -> int:
    compute = 2 * layer.multiplies * batch / FLOPS_PER_NS
    return int(max(compute, 3 * layer.outputs * batch * FLOAT / BYTES_PER_NS)) + 5000


def training(name: str, batch: int) -> tuple[Events, int]:
    """The events of a start and one step, and where the step begins (to loop from).

    Slot 0 holds weights, gradients and momentum; slot n the output of layer n - 1.
    """
    layers = NETWORKS[name]()
    weights = sum(layer.weights for layer in layers)
    rows = [(0, 0, ALLOC, 0, 3 * weights * FLOAT)]
    first = len(rows)
    for index, layer in enumerate(layers):
        rows.append((index + 1, 0, ALLOC, 0, max(1, layer.outputs * batch * FLOAT)))
        rows.append((0, 0, COMPUTE, 0, _forward_ns(layer, batch)))
    for index in range(len(layers) - 1, -1, -1):
        layer = layers[index]
        gradient = 512 + index % 2
        rows.append((gradient, 0, ALLOC, 0, max(1, layer.outputs * batch * FLOAT)))
        rows.append((0, 0, COMPUTE, 0, 2 * _forward_ns(layer, batch)))
        rows.append((index + 1, 0, FREE, 0, 0))
    rows += [(512, 0, FREE, 0, 0), (513, 0, FREE, 0, 0), (0, 0, COMPUTE, 0, weights * 12 // 900)]
    return make(rows), first


def peak_bytes(events: Events) -> int:
    """The most that a trace holds at once, in whole chunks as the stand-in counts."""
    held: dict[int, int] = {}
    most = 0
    for index, _, kind, _, value in events.tolist():
        if kind == ALLOC:
            held[index] = -(-value // (2 << 20)) * (2 << 20)
        elif kind == FREE:
            held.pop(index, None)
        most = max(most, sum(held.values()))
    return most

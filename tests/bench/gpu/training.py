# SPDX-License-Identifier: Apache-2.0
"""PyTorch as users run it, nothing of tierd in it: one JSON line a check.

    python3 training.py [--steps N] [--only train,...]

Run plain and under the shim, the losses of `train` must be equal to the last bit: each
step is made of deterministic kernels, and every byte of weights, gradients and optimizer
state goes into the next one.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

WORDS, WIDTH, LAYERS, HEADS = 32000, 1024, 8, 16
MANAGED = 8  # CU_POINTER_ATTRIBUTE_IS_MANAGED


class Block(nn.Module):
    """One layer of a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [batch, words, WIDTH]."""
        batch, words, _ = x.shape
        parts = self.qkv(self.before(x)).view(batch, words, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.MATH):  # others add up in any order
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, words, WIDTH))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Decoder(nn.Module):
    """A small language model: 167 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """words: int64[batch, words]."""
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def is_managed(tensor: torch.Tensor) -> int:
    """Whether the driver says that a tensor is managed memory."""
    value = ctypes.c_uint(9)
    cuda = ctypes.CDLL("libcuda.so.1")
    status = cuda.cuPointerGetAttribute(
        ctypes.byref(value), MANAGED, ctypes.c_uint64(tensor.data_ptr())
    )
    return value.value if not status else -status


def train(steps: int) -> dict[str, Any]:
    """Steps of AdamW on one batch; the loss of each, exactly."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    net = Decoder().cuda().bfloat16()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    words = torch.randint(0, WORDS, (8, 513), device="cuda")
    losses, times = [], []
    for _ in range(steps):
        start = time.perf_counter()
        logits = net(words[:, :-1]).flatten(0, 1).float()
        loss = functional.cross_entropy(logits, words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
        times.append(time.perf_counter() - start)
    late = sorted(times[len(times) // 2 :])
    torch.use_deterministic_algorithms(False)
    return {
        "steps": steps, "ms_a_step": round(late[len(late) // 2] * 1e3, 3),
        "reserved_mib": torch.cuda.memory_reserved() >> 20,
        "managed": is_managed(net.head.weight), "losses": losses,
    }  # fmt: skip


def graph(steps: int) -> dict[str, Any]:
    """A captured graph, replayed, gives what the same calls give."""
    a = torch.randn(4096, 4096, device="cuda")
    (a @ a).sum()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = (a @ a).relu()
    for _ in range(steps):
        captured.replay()
    torch.cuda.synchronize()
    return {"holds": bool(torch.equal(out, (a @ a).relu()))}


def share(steps: int) -> dict[str, Any]:
    """What torch.multiprocessing and a custom all-reduce need: a handle for another process."""
    del steps
    tensor = torch.zeros(8 << 20, device="cuda")
    return {"handle": len(tensor.untyped_storage()._share_cuda_()[1])}


def from_pinned(steps: int) -> dict[str, Any]:
    """Copies from pinned host memory, the first into memory not used before."""
    del steps
    host = torch.ones(256 << 20, dtype=torch.uint8, pin_memory=True)
    device, rates = torch.empty_like(host, device="cuda"), []
    for _ in range(2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        device.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        rates.append(round(host.numel() / (time.perf_counter() - start) / 1e9, 1))
    return {"gb_s": rates, "holds": bool((device == 1).all())}


CHECKS: tuple[Callable[[int], dict[str, Any]], ...] = (train, graph, share, from_pinned)


def main() -> int:
    """Each check, whatever becomes of the one before."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    for check in CHECKS:
        if args.only and check.__name__ not in args.only.split(","):
            continue
        try:
            line = check(args.steps)
        except Exception as error:
            line = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
        print(json.dumps({"step": check.__name__, **line}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

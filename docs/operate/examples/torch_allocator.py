# SPDX-License-Identifier: Apache-2.0
"""PyTorch on memory that tierd may place: a pluggable allocator of libtierd-gpu.

    TIERD_GPU_LIBRARY=build/gpu/libtierd-gpu.so python docs/operate/examples/torch_allocator.py

Needs PyTorch with CUDA, and `tierd gpu serve` for anything to be moved; without the
daemon the memory is managed memory, placed by the driver. The allocator must be set
before the first CUDA tensor is made. PyTorch's own caching is off with it, so this
example makes few, large tensors.
"""

from __future__ import annotations

import importlib
import os
import sys


def main() -> int:
    """One training loop on tracked memory."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        print("PyTorch is not installed here: nothing was run")
        return 5
    if not torch.cuda.is_available():
        print("no GPU here: nothing was run")
        return 5
    library = os.environ.get("TIERD_GPU_LIBRARY", "libtierd-gpu.so")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "tg_torch_alloc", "tg_torch_free")
    torch.cuda.memory.change_current_allocator(allocator)
    model = torch.nn.Sequential(
        torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(4096, 4096, device="cuda")
    for step in range(10):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        print(step, float(loss))
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The daemon's part on this GPU, told that it is smaller than it is.

    python3 served.py SOCKET MIB

Programs that need more than MIB are served as on a full GPU: chunks go to the host ahead
of need and come back by prediction, through the driver's own calls and under running
kernels, while the card itself never has more managed memory than it holds. At the end
(end of input) it prints what its tenants did, a JSON line each.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "daemon"))

from tierd_gpu.harvest import Harvester
from tierd_gpu.nvml import Nvml
from tierd_gpu.server import ServerSettings
from tierd_gpu.service import GpuService
from tierd_gpu.settings import HarvestSettings


class Small:
    """A GPU of which all but `size` bytes is somebody's own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.core: Harvester | None = None

    def free_bytes(self) -> list[int | None]:
        """One GPU."""
        return [self.size]

    def own_bytes(self) -> list[int | None]:
        """What of it is not for tenants."""
        assert self.core is not None
        return [self.core.gpus[0].total - self.size]


def main() -> int:
    """Serve until the input ends."""
    memory = Small(int(sys.argv[2]) << 20)
    nvml = Nvml()
    settings = HarvestSettings(observe_ns=0)
    service = GpuService(nvml.topology(), memory, ServerSettings(Path(sys.argv[1])), settings)
    memory.core = service.core
    seen: dict[int, dict[str, object]] = {}
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    print("ready", flush=True)
    while not ended.is_set():
        service.step()
        for session, tenant in service.core.tenants.items():
            before = seen.get(session, {"most_on_host": 0})
            host = int(tenant.count[-1])
            seen[session] = {
                "step": "served", "program": tenant.spec.name, "uses": tenant.uses,
                "commands": tenant.sequence, "at_home": int(tenant.count[0]), "on_host": host,
                "most_on_host": max(host, int(str(before["most_on_host"]))),
                "predicted": tenant.predictor.hits, "not_predicted": tenant.predictor.misses,
            }  # fmt: skip
    service.close()
    for line in seen.values():
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

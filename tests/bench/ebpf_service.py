# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a running service, with and without a source that the helper loads.

    python3 tests/bench/ebpf_service.py TOUCH

Run as root; TOUCH is built from tests/workloads/touch.c. Both services are whole (loop,
endpoint, control socket); the second tier is made up (`tests/support/hostservice.py`). One
has a made-up source, the other the faults source, which counts the faults of TOUCH. One
JSON line, with the bound that the service without its heat table shall keep.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vm"))

from guest_ebpf_ground import Touch
from service_idle import ROOT, figures, resident_bytes

BOUND_MIB = 80
SETTLE_S = 10
LIMIT_S = 120


def measure(touch: Touch, sources: str) -> dict[str, Any]:
    """One service's MiB after some seconds of work."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "tierd.toml"
        config.write_text(
            f'[targets]\nmatch = {{ pid = {touch.pid} }}\nmin_rss = "1MiB"\n'
            '[sources]\norder = ["faults"]\n'
            "[metrics]\nport = 0\n"
            f'[control]\nsocket = "{folder}/control.sock"\nstate = "{folder}"\n'
        )
        command = [sys.executable, str(ROOT / "tests/support/hostservice.py")]
        command += ["--config", str(config), sources]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/daemon:{ROOT}/tests/support"}
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(command, stdout=log, stderr=log, env=environment) as service,
        ):
            try:
                end = time.monotonic() + LIMIT_S
                wanted = "event=bpf_loaded" if sources == "--own-sources" else "metrics_listening"
                while wanted not in (text := (folder / "log").read_text()):
                    if service.poll() is not None or time.monotonic() > end:
                        raise SystemExit(f"the service did not say {wanted}:\n{text}")
                    time.sleep(0.2)
                for _ in range(SETTLE_S):
                    touch.say("go")
                    time.sleep(1)
                text = (folder / "log").read_text()
                said = figures(text.partition("metrics_listening url=")[2].split()[0])
                resident = resident_bytes(service.pid)
            finally:
                service.terminate()
    heat = said["tierd_heat_memory_bytes"]
    return {
        "resident_mib": round(resident / 2**20, 1),
        "heat_mib": round(heat / 2**20, 1),
        "without_heat_mib": round((resident - heat) / 2**20, 1),
        "loaded": text.partition("event=bpf_loaded ")[2].partition("\n")[0],
        "records": sum(v for k, v in said.items() if k.startswith("tierd_samples_total")),
    }


def main() -> int:
    """Both services, one after the other."""
    parser = argparse.ArgumentParser(description="memory of a service with an eBPF source")
    parser.add_argument("touch")
    args = parser.parse_args()
    touch = Touch(args.touch, 4000, 1)
    touch.say("go")
    without = measure(touch, "--rate=1000")
    loaded = measure(touch, "--own-sources")
    touch.close()
    told = {"without_the_helper": without, "with_the_helper": loaded, "bound_mib": BOUND_MIB}
    print(json.dumps({"bench": "service_memory"} | told))
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""`config/kubernetes/tierd.yaml`, read: what it says of tierd's pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

_FILE: Final = Path(__file__).resolve().parents[2] / "config/kubernetes/tierd.yaml"
_OBJECTS: Final = {each["kind"]: each for each in yaml.safe_load_all(_FILE.read_text())}
POD: Final[dict[str, Any]] = _OBJECTS["DaemonSet"]["spec"]["template"]["spec"]
CONTAINER: Final[dict[str, Any]] = POD["containers"][0]
SECURITY: Final[dict[str, Any]] = CONTAINER["securityContext"]
CONFIGURATION: Final[str] = _OBJECTS["ConfigMap"]["data"]["tierd.toml"]
MEMORY_BYTES: Final = int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
"""It may take no more."""

# SPDX-License-Identifier: Apache-2.0
"""Numbers that tune say what they are, and each is read."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tierd_gpu import tuning

OBJECTS = {
    name: each
    for name, each in vars(tuning).items()
    if name.isupper() and dataclasses.is_dataclass(each)
}
DAEMON = Path(tuning.__file__).parent
NATIVE = DAEMON.parent / "native/gpu"


@pytest.mark.parametrize("name", OBJECTS)
def test_a_number_says_what_it_is_and_is_read(name: str) -> None:
    text = "".join(path.read_text() for path in DAEMON.glob("*.py") if path.stem != "tuning")
    for field in dataclasses.fields(OBJECTS[name]):
        assert field.metadata["unit"], field.name
        assert re.fullmatch(r"[A-Z].*\.", field.metadata["meaning"]), field.name
        assert field.metadata["evidence"], field.name
        assert f"{name}.{field.name}" in text, field.name


def test_a_number_of_the_library_is_read() -> None:
    text = "".join(path.read_text() for path in NATIVE.glob("*.[ch]") if path.stem != "tuning")
    names = re.findall(r"#define (TG_\w+) \S", (NATIVE / "tuning.h").read_text())
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []

# SPDX-License-Identifier: Apache-2.0
"""Manual pages, completion, the unit and the manifest: nothing missing, nothing at odds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pod_manifest import SECURITY

from tierd.cli import SUMMARIES, build_parser
from tierd.config.model import Config
from tierd.config.schema import options_of
from tierd.core.errors import ExitCode

ROOT = Path(__file__).parents[3]
UNIT = (ROOT / "systemd/tierd.service").read_text()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Page → its roff text with escapes taken out."""
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, ROOT / "docs/man/make.py", folder], check=True)
    return {
        file.name: file.read_text().replace("\\-", "-").replace("\\&", "").replace("\\fB", "")
        for file in folder.glob("man*/*")
    }


def test_the_pages_are_there(pages: dict[str, str]) -> None:
    assert sorted(pages) == ["tierd.1", "tierd.8", "tierd.toml.5"]
    assert not any(re.search("@[A-Z_]+@", text) for text in pages.values())


def test_every_command_and_option_is_in_the_manual(pages: dict[str, str]) -> None:
    text = pages["tierd.1"]
    for name in SUMMARIES:
        assert f"tierd {name}" in text
    commands = next(a for a in build_parser()._actions if a.dest == "command")
    for parser in commands.choices.values():
        for action in parser._actions:
            for option in action.option_strings:
                assert option in text or option in ("-h", "--help"), option


def test_every_key_is_in_the_manual(pages: dict[str, str]) -> None:
    text = pages["tierd.toml.5"]
    plain = re.sub(r"\s+", " ", text.replace("\\fR", ""))

    def walk(cls: type[Any]) -> int:
        found = 0
        for key, (_, made) in options_of(cls).items():
            inner = getattr(getattr(made.kind, "item", made.kind), "cls", None)
            if inner is not None:
                found += walk(inner)
            if not hasattr(made.kind, "cls"):
                assert f"{key} (" in plain, key
                found += 1
        return found

    assert walk(Config) > 50


@pytest.mark.parametrize("page", ["tierd.1", "tierd.8"])
def test_every_exit_code_is_in_the_manual(pages: dict[str, str], page: str) -> None:
    section = pages[page].split("EXIT STATUS")[1]
    for code in ExitCode:
        assert f"{int(code)}\\fR" in section


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command(shell: str) -> None:
    script = [sys.executable, ROOT / "config/debian/completion.py", shell]
    told = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    for name in SUMMARIES:
        assert re.search(rf"\b{name}\b", told)
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=told, text=True, check=True)


def capabilities() -> set[str]:
    line = re.search(r"^CapabilityBoundingSet=(.*)$", UNIT, re.MULTILINE)
    assert line is not None
    return {name.removeprefix("CAP_") for name in line[1].split()}


def test_the_unit_may_load_no_module_and_is_no_administrator() -> None:
    assert not capabilities() & {"SYS_MODULE", "SYS_ADMIN", "SYS_RAWIO", "DAC_OVERRIDE"}


def test_the_unit_leaves_open_what_tierd_needs() -> None:
    for taboo in ("ProtectKernelTunables=yes", "ProtectProc=invisible", "PrivateUsers=yes"):
        assert taboo not in UNIT
    assert "RestartPreventExitStatus=3 4" in UNIT
    assert (ExitCode.CONFIG, ExitCode.NOTHING_TO_DO) == (3, 4)


def test_the_manifest_gives_a_pod_the_units_capabilities_and_no_more() -> None:
    assert set(SECURITY["capabilities"]["add"]) == capabilities()
    assert SECURITY["capabilities"]["drop"] == ["ALL"]
    assert SECURITY["privileged"] is False
    assert SECURITY["allowPrivilegeEscalation"] is False


def test_the_operators_page_names_every_capability() -> None:
    page = (ROOT / "docs/operate/README.md").read_text()
    for name in capabilities():
        assert f"CAP_{name}" in page

# SPDX-License-Identifier: Apache-2.0
"""What each command imports: a start in a guest pays half a second for NumPy alone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
before = set(sys.modules)
from tierd.cli import main
try:
    FIRST
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print("\\n", code, *sys.modules.keys() - before)
"""
ARRAYS = {"numpy", "_cffi_backend", "tierd._native"}
HEAVY = ARRAYS | {
    "asyncio", "difflib", "importlib.metadata", "importlib.resources", "logging",
    "prometheus_client", "pyroute2", "subprocess", "tempfile",
}  # fmt: skip
"""What none of the light commands needs."""
ANSWER = {
    "changed": [], "files": [], "kept": True, "note": "", "paused": None, "processes": [],
    "restart": [], "undo": {"active": False, "left_alone": {}, "put_back": 0}, "was_paused": False,
}  # fmt: skip


def loaded(*arguments: str, code: int | None = 0, first: str = "") -> set[str]:
    """The modules that a command has imported at its end, after the statements of `first`.

    Those that site imports are left out.
    """
    done = subprocess.run(
        # Without site: what the environment loads at each start is not this project's.
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            PROGRAM.replace("FIRST", first),
            ":".join(filter(None, sys.path)),
            *arguments,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    ended, *modules = done.stdout.rpartition("\n")[0].rpartition("\n")[2].split()
    assert ended == str(code), done
    return set(modules)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Path]:
    """A configuration, and who answers on its socket, always the same."""
    path = tmp_path / "control.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                for line in stream:
                    stream.write(json.dumps({"ok": True, "result": ANSWER}).encode() + b"\n")
                    if json.loads(line)["command"] == "events":
                        stream.write(b'{"event": {"kind": "dropped", "events": 1}}\n')
                    stream.flush()

    thread = threading.Thread(target=serve)
    thread.start()
    config = tmp_path / "tierd.toml"
    config.write_text(f'[control]\nsocket = "{path}"\n')
    yield config
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(("option", "code"), [("--version", 0), ("--help", 0), ("", 2)])
def test_the_version_and_the_help_load_no_command(option: str, code: int) -> None:
    modules = loaded(*filter(None, [option]), code=code)
    own = {name for name in modules if name.partition(".")[0] in ("tierd", "tierd_gpu")}
    assert own == {"tierd", "tierd.cli", "tierd.core", "tierd.core.errors"}
    assert not modules & HEAVY


CONTROL = [
    ["status"], ["events", "--count", "1"], ["explain", "1"], ["pause"], ["resume"], ["reload"],
    ["set", "migration.retries=5"], ["undo"],
]  # fmt: skip


@pytest.mark.parametrize("command", CONTROL, ids=lambda command: command[0])
def test_a_command_that_asks_the_service_loads_one_section(
    command: list[str], service: Path
) -> None:
    modules = loaded(*command, "--json", "--config", str(service))
    assert not modules & HEAVY
    assert "tierd.config.serving" in modules
    assert "tierd.config.model" not in modules


def test_a_command_that_is_given_a_socket_loads_no_configuration(service: Path) -> None:
    modules = loaded("status", "--json", "--socket", str(service.parent / "control.sock"))
    assert not {name for name in modules if name.startswith(("tierd.config", "tomllib"))}


@pytest.mark.parametrize("action", ["show", "check", "schema", "diff"])
def test_a_configuration_needs_no_arrays(action: str, service: Path) -> None:
    code = 1 if action == "diff" else 0
    modules = loaded("config", action, "--config", str(service), code=code)
    assert "tierd.config.model" in modules
    assert not modules & HEAVY


def test_the_topology_needs_no_arrays() -> None:
    # NVIDIA's library, which is asked where its driver is, brings what it likes.
    first = "import pathlib, tierd.cli.topology as t; t.NVIDIA_DRIVER = pathlib.Path('/nowhere')"
    modules = loaded("topology", first=first)
    assert "tierd.topology.reader" in modules
    assert not modules & ARRAYS


@pytest.mark.parametrize("command", ["replay", "report", "run", "top", "trial"])
def test_the_help_of_a_command_needs_no_arrays(command: str) -> None:
    assert not loaded(command, "--help") & ARRAYS


CODEC = """
import sys
sys.path[:0] = sys.argv.pop(1).split(":")
from tierd.sources.kmod.genl import codec
assert codec() is codec() is sys.modules["pyroute2.netlink"]
print(len([name for name in sys.modules if name.startswith("pyroute2")]))
from pyroute2 import IPRoute
assert issubclass(IPRoute, object)
"""


def test_the_coder_of_netlink_messages_comes_without_the_rest_of_pyroute2() -> None:
    path = ":".join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CODEC, path], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 10

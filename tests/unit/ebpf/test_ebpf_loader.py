# SPDX-License-Identifier: Apache-2.0
"""The loader and its helper where things go wrong: always one clear message."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.sources.ebpf import files, helper, host, loader, syscalls
from tierd.sources.ebpf.loader import Loading, Program
from tierd.sources.faults import FaultSource

PROGRAM = Program("faults", (("on_fault", "perf_event"),), {"sets": 16, "stats": 2})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that alone is looked through for sources and objects."""
    monkeypatch.setattr(files, "folders", lambda: [tmp_path])
    (tmp_path / "objects").mkdir()
    return tmp_path


def test_nothing_installed_tells_each_ways_reason(folder, monkeypatch):
    monkeypatch.setattr(files, "find_bcc_python", lambda: None)
    with pytest.raises(UnavailableError) as caught:
        Loading(PROGRAM)
    assert "no Python here has bcc" in str(caught.value)
    assert "no compiled object faults.bpf.o" in str(caught.value)
    assert "tierd doctor" in caught.value.hint


def test_bcc_without_headers_or_source_is_passed_over(folder, monkeypatch):
    monkeypatch.setattr(files, "find_bcc_python", lambda: Path(sys.executable))
    assert "source faults.bpf.c" in loader.ways("faults", ["bcc"])[1]["bcc"]
    (folder / "faults.bpf.c").touch()
    monkeypatch.setattr(files, "find_headers", lambda: None)
    assert "no kernel headers" in loader.ways("faults", ["bcc"])[1]["bcc"]


def test_an_object_that_is_none_is_told(folder):
    (folder / "objects" / "faults.bpf.o").write_bytes(b"this is no ELF file")
    loading = Loading(PROGRAM, ["prebuilt"])
    with pytest.raises(UnavailableError, match="libbpf"):
        loading.wait(30)


def test_a_helper_that_dies_is_told(folder, monkeypatch):
    """A Python that cannot even start the helper: its last words are in the message."""
    (folder / "objects" / "faults.bpf.o").touch()
    python = folder / "python"
    python.write_text("#!/bin/sh\necho out of luck >&2\nexit 7\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(UnavailableError, match=r"status 7: out of luck"):
        Loading(PROGRAM, ["prebuilt"]).wait(30)


def test_a_helper_that_hangs_is_ended(folder, monkeypatch):
    (folder / "objects" / "faults.bpf.o").touch()
    python = folder / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(bounds, "BPF_HELPER_TIMEOUT_S", 0.3)
    with pytest.raises(UnavailableError, match="took more than"):
        Loading(PROGRAM, ["prebuilt"]).wait(30)


def test_the_next_way_is_tried_when_one_fails(folder, monkeypatch):
    """Both fail here, and both reasons are told, in the order they were tried."""
    (folder / "objects" / "faults.bpf.o").touch()
    (folder / "faults.bpf.c").write_text("this is no C\n")
    python = folder / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(files, "find_bcc_python", lambda: python)
    monkeypatch.setattr(files, "find_headers", lambda: files.Headers("1.0", True))
    with pytest.raises(UnavailableError, match=r"bcc: the helper ended.*prebuilt: libbpf"):
        Loading(PROGRAM, ["bcc", "prebuilt"]).wait(30)


def test_the_helper_ends_when_its_service_is_gone():
    request = {"owner": 1, "loader": "prebuilt"}
    result = subprocess.run(
        [sys.executable, "-m", "tierd.sources.ebpf.helper"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(loader.__file__).resolve().parents[2])},
        check=False,
    )
    assert result.returncode == 1 and result.stdout == ""


def test_the_helper_needs_the_standard_library_only():
    """The distribution's Python, which has bcc, need not have NumPy."""
    code = "import sys, tierd.sources.ebpf.helper; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(loader.__file__).resolve().parents[2])},
        check=True,
    )
    assert not {"numpy", "cffi", "bcc"} & set(result.stdout.split())


def test_includes_are_pasted_once(tmp_path):
    (tmp_path / "a.h").write_text('#include "b.h"\nint a;\n')
    (tmp_path / "b.h").write_text("int b;\n")
    (tmp_path / "p.bpf.c").write_text('#include <std.h>\n#include "a.h"\n#include "b.h"\nint p;\n')
    assert helper.paste_includes(tmp_path / "p.bpf.c") == "#include <std.h>\nint b;\nint a;\nint p;"


def refuse(number: int):
    def call(*_args: object, **_named: object) -> int:
        raise OSError(number, "refused")

    return call


@pytest.mark.parametrize(
    "capable, said",
    [(False, "BPF programs need CAP_BPF and CAP_PERFMON"), (True, "seccomp")],
)
def test_refused_bpf_says_why(monkeypatch, capable, said):
    monkeypatch.setattr(syscalls, "load_nothing", refuse(1))
    monkeypatch.setattr(host, "has_capability", lambda _: capable)
    state = FaultSource().available()
    assert not state.ok and said in state.reason and state.hint


def test_a_kernel_without_bpf(monkeypatch):
    monkeypatch.setattr(syscalls, "load_nothing", refuse(38))
    assert "no BPF" in FaultSource().available().reason


def test_refused_events_tell_the_paranoid_level(monkeypatch, tmp_path):
    (tmp_path / "paranoid").write_text("4\n")
    monkeypatch.setattr(host, "PARANOID", tmp_path / "paranoid")
    monkeypatch.setattr(host, "has_capability", lambda _: False)
    reason, hint = host.explain_open(OSError(13, "Permission denied"))
    assert "perf_event_paranoid is 4" in reason and "CAP_PERFMON is missing" in reason
    assert "CAP_PERFMON" in hint


def test_a_paranoid_debian_kernel_wants_more_than_its_capability(monkeypatch, tmp_path):
    """Seen on Debian's 6.1: level 3, its default, refuses CAP_PERFMON alone."""
    (tmp_path / "paranoid").write_text("3\n")
    monkeypatch.setattr(host, "PARANOID", tmp_path / "paranoid")
    monkeypatch.setattr(host, "has_capability", lambda _: True)
    reason, hint = host.explain_open(OSError(13, "Permission denied"))
    assert "CAP_PERFMON is there" in reason
    assert "perf_event_paranoid=2" in hint and "CAP_SYS_ADMIN" in hint


@pytest.mark.parametrize(
    "number, said", [(2, "does not have"), (16, "another program"), (5, "Input/output error")]
)
def test_other_refusals_of_events_are_told_apart(number, said):
    import os

    assert said in host.explain_open(OSError(number, os.strerror(number)))[0]

# SPDX-License-Identifier: Apache-2.0
"""The disk with what guests read most: made once, and anew when a file has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tierd.core.errors import TierdError
from tierd_lab import files


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """A folder with a module and what Python compiled of it."""
    folder = tmp_path / "held"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "one.py").write_text("a = 1\n")
    (folder / "link.py").symlink_to("one.py")
    (folder / "__pycache__/one.pyc").write_bytes(b"code")
    return folder


def test_folders_are_this_tree_and_python_and_none_is_inside_another() -> None:
    found = files.folders()
    assert files.ROOT / "daemon" in found
    assert files.ROOT / "tests" in found
    everywhere = [*found, *(parent for each in found for parent in each.parents)]
    for needed in (Path(os.__file__), Path(sys.executable).absolute()):
        assert set(needed.parents) & set(found)
    assert not [each for each in found if set(each.parents) & set(found)]
    assert Path("/") in everywhere
    assert Path("/") not in found
    assert Path("/usr") not in found


def test_a_disk_has_the_files_under_their_whole_paths(held: Path, tmp_path: Path) -> None:
    image = files.disk(tmp_path / "kept", [held])
    taken = tmp_path / "taken"
    subprocess.run(["unsquashfs", "-q", "-n", "-d", taken, image], check=True, capture_output=True)
    inside = taken / held.relative_to("/")
    assert (inside / "one.py").read_text() == "a = 1\n"
    assert (inside / "link.py").readlink() == Path("one.py")
    assert (inside / "__pycache__/one.pyc").read_bytes() == b"code"
    assert int((inside / "one.py").stat().st_mtime) == int((held / "one.py").stat().st_mtime)


def test_a_disk_is_made_anew_only_when_a_file_has_changed(held: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    first = files.disk(kept, [held])
    made = first.stat().st_ino
    (held / "__pycache__/two.pyc").write_bytes(b"more")
    assert files.disk(kept, [held]) == first
    assert first.stat().st_ino == made
    (held / "one.py").write_text("a = 2\n")
    second = files.disk(kept, [held])
    assert second != first
    (held / "one.py").unlink()
    assert files.disk(kept, [held]) not in (first, second)


def test_disks_of_former_trees_go(held: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    made = []
    for number in range(5):
        (held / "one.py").write_text(f"a = 1{'0' * number}\n")
        made.append(files.disk(kept, [held]))
        past = time.time() - 100 + number
        os.utime(made[-1], (past, past))
    assert sorted(kept.glob("*.squashfs")) == sorted(made[-2:])


def test_a_failure_leaves_no_disk_and_says_why(held: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(TierdError, match=r"mksquashfs made no disk of 2 folders \(status 1\): \S"):
        files.disk(kept, [held, tmp_path / "none"])
    assert {each.name for each in kept.iterdir()} <= {"lock"}


def test_what_is_shared_with_a_guest_is_not_taken_from_the_disk() -> None:
    held = [Path("/tree/tests"), Path("/tree/daemon"), Path("/usr/lib/python3")]
    for shared in ("/tree", "/tree/daemon", "/tree/daemon/tierd"):
        script = files.mount_script(held, [Path(shared)])
        assert "/tree/daemon" not in script
        assert "/usr/lib/python3" in script
        assert ("/tree/tests" in script) == (shared != "/tree")


def test_a_guest_without_the_disk_goes_on(tmp_path: Path) -> None:
    script = files.mount_script([tmp_path / "a b"]).replace("/run/", f"{tmp_path}/")
    script = script.replace("/sys/block", str(tmp_path)).replace("modprobe", "true")
    done = subprocess.run(
        ["bash", "-c", f"{script}echo on"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("on\n", "")

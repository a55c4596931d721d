# SPDX-License-Identifier: Apache-2.0
"""Targets on the running kernel, with real processes. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tierd.config.whole import loads
from tierd.core import bounds
from tierd.core.errors import UnavailableError
from tierd.workloads.events import ProcessEventSocket
from tierd.workloads.maps import movable_ranges
from tierd.workloads.registry import TargetRegistry
from tierd.workloads.target import Target

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

NOT_OURS = 1 << 22
"""A process id that no process has: the tests watch their own children."""
CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
WAIT = "import os, sys; b = bytearray(32 << 20); print('ready', flush=True); os.read(0, 1)"

Make = Callable[..., TargetRegistry]
Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(params=["events", "poll"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made = []

    def _make(match: str, **more: Any) -> TargetRegistry:
        opener = ProcessEventSocket.open if request.param == "events" else None
        text = f"[targets]\nmatch = {match}\n" + "\n".join(f"{k} = {v}" for k, v in more.items())
        registry = TargetRegistry(loads(text).targets, own_pid=NOT_OURS, open_events=opener)
        made.append(registry)
        if opener is not None and registry.events is None:
            pytest.skip(registry.events_refused)
        return registry

    yield _make
    for registry in made:
        registry.close()


def only(registry: TargetRegistry) -> Target:
    (target,) = registry.targets.values()
    return target


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mark(request: pytest.FixtureRequest) -> str:
    """An argument by which a test's own processes are known."""
    return f"tierd-test-{os.getpid()}-{abs(hash(request.node.nodeid))}"


def test_a_process_starts_executes_and_ends(
    make: Make, spawn: Spawn, request: pytest.FixtureRequest
) -> None:
    name = mark(request)
    registry = make(f'{{ cmdline = "{name}" }}')
    assert registry.refresh(time.monotonic_ns()).started == ()
    again = f"import os, sys; os.read(0, 1); os.execv(sys.executable, ['py', '-c', {WAIT!r}, 'x'])"
    child = spawn(f"b = bytearray(32 << 20); print(flush=True); {again}", name)
    (first,) = registry.refresh(time.monotonic_ns()).started
    assert first.pid == child.pid
    assert first.comm.startswith("python")
    assert first.rss_bytes > 32 << 20
    assert registry.refresh(time.monotonic_ns()).started == ()

    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"x")
    child.stdin.flush()
    child.stdout.readline()
    registry.configure(loads("[targets]\nmatch = { exe = '/nowhere', pid = 1 }").targets)
    registry.configure(loads(f"[targets]\nmatch = {{ pid = {child.pid} }}").targets)
    # Same process, another program: configure() dropped what was kept, so that only the
    # event can tell; with polling alone the next exec is told by its addresses.
    changes = registry.refresh(time.monotonic_ns())
    if registry.events is not None:
        assert [target.number for target in changes.ended] == [first.number]
        assert [target.pid for target in changes.started] == [child.pid]

    child.kill()
    child.wait()
    last = only(registry)
    assert registry.refresh(time.monotonic_ns()).ended == (last,)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(last.pidfd)


def test_an_exec_is_told_by_the_addresses_when_polling(
    spawn: Spawn, request: pytest.FixtureRequest
) -> None:
    registry = TargetRegistry(
        loads(f'[targets]\nmatch = {{ cmdline = "{mark(request)}" }}').targets,
        own_pid=NOT_OURS,
        open_events=None,
    )
    name = mark(request)
    again = f"os.execv(sys.executable, ['py', '-c', {WAIT!r}, {name!r}])"
    child = spawn(
        f"import os, sys; b = bytearray(32 << 20); print(flush=True); os.read(0, 1); {again}", name
    )
    registry.refresh(0)
    before = only(registry)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"x")
    child.stdin.flush()
    child.stdout.readline()
    changes = registry.refresh(1)
    assert [target.number for target in changes.ended] == [before.number]
    assert [target.pid for target in changes.started] == [child.pid]
    registry.close()


def test_a_changed_user_is_seen(make: Make, spawn: Spawn, request: pytest.FixtureRequest) -> None:
    name = mark(request)
    registry = make(f'{{ cmdline = "{name}", uid = "nobody" }}')
    script = (
        "import os, pwd; b = bytearray(32 << 20); print(flush=True); os.read(0, 1)\n"
        "os.setuid(pwd.getpwnam('nobody').pw_uid); print(flush=True); os.read(0, 1)"
    )
    child = spawn(script, name)
    registry.refresh(time.monotonic_ns())
    assert registry.targets == {}
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"x")
    child.stdin.flush()
    child.stdout.readline()
    registry.refresh(time.monotonic_ns())
    assert only(registry).pid == child.pid
    assert movable_ranges(child.pid).ranges


def test_a_process_moved_to_another_cgroup_is_seen(
    make: Make, spawn: Spawn, request: pytest.FixtureRequest
) -> None:
    tree = next((path for path in CGROUPS if (path / "cgroup.procs").exists()), None)
    folder = tree / f"tierd-test-{os.getpid()}" if tree is not None else None
    try:
        assert folder is not None
        (folder / "inner").mkdir(parents=True)
    except (OSError, AssertionError) as error:
        pytest.skip(f"no writable cgroup v2 tree: {error}")
    try:
        registry = make(f'{{ cgroup = "/tierd-test-*", cmdline = "{mark(request)}" }}')
        child = spawn(WAIT, mark(request))
        registry.refresh(time.monotonic_ns())
        assert registry.targets == {}
        (folder / "inner" / "cgroup.procs").write_text(str(child.pid))
        registry.refresh(time.monotonic_ns())
        assert only(registry).cgroup == f"/{folder.name}/inner"
        child.kill()
        child.wait()
    finally:
        (folder / "inner").rmdir()
        folder.rmdir()


def test_a_hostile_name_does_not_mislead(
    make: Make, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A program whose file name, own name and arguments are made to confuse a parser."""
    copy = os.fsencode(tmp_path) + b"/real\n\xfe) S 1 1"
    Path(os.fsdecode(copy)).write_bytes(Path("/bin/sleep").read_bytes())
    Path(os.fsdecode(copy)).chmod(0o755)
    child = subprocess.Popen([copy, b"100"], executable=copy, stdout=subprocess.DEVNULL)
    bad = subprocess.Popen([b"\xff\nredis-server", b"-c", WAIT], executable=sys.executable,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert bad.stdout is not None
        bad.stdout.readline()
        time.sleep(0.1)
        wrong = make('{ any = [{ exe = "redis-server" }, { cmdline = "^redis-server" }] }',
                     min_rss='"0B"')  # fmt: skip
        wrong.refresh(time.monotonic_ns())
        assert not {child.pid, bad.pid} & {target.pid for target in wrong.targets.values()}
        right = make(f"{{ any = [{{ pid = {child.pid} }}, {{ pid = {bad.pid} }}] }}",
                     min_rss='"0B"')  # fmt: skip
        right.refresh(time.monotonic_ns())
        assert {target.pid for target in right.targets.values()} == {child.pid, bad.pid}
        movable_ranges(child.pid)
    finally:
        for process in (child, bad):
            process.kill()
            process.communicate()


def test_ten_thousand_short_lived_processes_leave_no_descriptor_behind(
    make: Make, request: pytest.FixtureRequest
) -> None:
    """Forks that touch nothing and exit at once, watched while they come and go."""
    registry = make("{}", min_rss='"0B"', deny="[]", limit=1000)
    registry.refresh(time.monotonic_ns())
    for number in list(registry.targets):
        assert os.fstat(registry.targets[number].pidfd)
    own = descriptors() - len(registry.targets)
    script = "i=0; while [ $i -lt 10000 ]; do (:); i=$((i+1)); done"
    storm = subprocess.Popen(["/bin/sh", "-c", script])
    while storm.poll() is None:
        changes = registry.refresh(time.monotonic_ns())
        for target in changes.ended:
            registry.release(target.number)
        assert descriptors() - len(registry.targets) <= own + 1
        time.sleep(0.05)
    assert storm.returncode == 0
    for target in registry.refresh(time.monotonic_ns()).ended:
        registry.release(target.number)
    assert not registry.numbers.unreleased
    assert storm.pid not in {target.pid for target in registry.targets.values()}
    assert descriptors() - len(registry.targets) == own
    if registry.events is not None:
        assert registry.events.received > 0 or registry.events.overflows > 0


def test_events_tell_starts_execs_users_and_ends() -> None:
    try:
        events = ProcessEventSocket.open()
    except UnavailableError as error:
        pytest.skip(str(error))
    try:
        child = subprocess.Popen(["/bin/sh", "-c", "exec /bin/true"])
        child.wait()
        user = os.fork()
        if user == 0:
            os.setuid(65534)
            os._exit(0)
        os.waitpid(user, 0)
        found = events.drain()
        assert {child.pid, user} <= found.started
        assert {child.pid, user} <= found.ended
        assert child.pid in found.executed
        assert user in found.changed
        assert not found.lost
    finally:
        events.close()


def test_more_events_than_the_buffer_holds_are_counted_as_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "EVENT_BUFFER_BYTES", 32768)
    try:
        events = ProcessEventSocket.open()
    except UnavailableError as error:
        pytest.skip(str(error))
    try:
        for _ in range(300):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        assert events.drain().lost
        assert events.overflows == 1
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        assert pid in events.drain().started
    finally:
        events.close()


def test_a_listener_in_another_pid_namespace_is_told_that_it_hears_nothing() -> None:
    script = (
        "from tierd.workloads.events import ProcessEventSocket\n"
        "from tierd.core.errors import UnavailableError\n"
        "try:\n    ProcessEventSocket.open(); print('opened')\n"
        "except UnavailableError as error:\n    print(error)\n"
    )
    path = str(Path(sys.modules["tierd"].__path__[0]).parent)
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", script]
    with contextlib.suppress(FileNotFoundError):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={"PYTHONPATH": path}
        )
        if "unshare" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert "namespace" in done.stdout


def test_an_ordinary_user_listens_or_is_told_why_not() -> None:
    """Linux 6.6 opened process events to everyone; before, they need CAP_NET_ADMIN."""
    script = (
        "import os; os.setuid(65534)\n"
        "from tierd.workloads.events import ProcessEventSocket\n"
        "from tierd.core.errors import UnavailableError\n"
        "try:\n    ProcessEventSocket.open(); print('opened')\n"
        "except UnavailableError as error:\n    print(error)\n"
    )
    path = ":".join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", script.replace("import os;", "import os, tierd.workloads.events;")],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": path},
    )
    assert "opened" in done.stdout or "CAP_NET_ADMIN" in done.stdout, done.stderr


def test_a_thread_is_no_process() -> None:
    try:
        events = ProcessEventSocket.open()
    except UnavailableError as error:
        pytest.skip(str(error))
    script = (
        "import threading\nids = []\n"
        "for _ in range(20):\n"
        "    t = threading.Thread(target=lambda: ids.append(threading.get_native_id()))\n"
        "    t.start(); t.join()\n"
        "print(*ids)"
    )
    try:
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        threads = set(map(int, child.communicate()[0].split()))
        found = events.drain()
        assert child.pid in found.started & found.ended
        assert len(threads) == 20
        assert not threads & (found.started | found.ended)
    finally:
        events.close()

# SPDX-License-Identifier: Apache-2.0
"""A real service process on this host: commands, other users, Prometheus, a stuck loop.

The second tier, the source and the mover are made up (`tests/support/hostservice.py`);
the rest, process and socket and endpoint, is what `tierd run` is.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from promtools import find

from tierd.core.errors import ExitCode

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests/support/hostservice.py"
ENOUGH_S = 300
"""Long enough for anything on a busy machine; nothing waits for it when all is well."""
NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as tierd does")


def wait_for(what: Callable[[], Any], why: str) -> Any:
    """The first true value of `what`."""
    until = time.monotonic() + ENOUGH_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            found = what()
            if found:
                return found
        time.sleep(0.1)
    return pytest.fail(f"never: {why}")


class Host:
    """A service and its folder."""

    def __init__(self, folder: Path, target: int) -> None:
        self.folder = folder
        self.socket = folder / "run/control.sock"
        self.config = folder / "tierd.toml"
        self.stuck = folder / "stuck"
        self.log = folder / "log"
        self.config.write_text(
            f"""
[loop]
interval = "100ms"
[targets]
match = {{ pid = {target} }}
min_rss = "1MiB"
[policy]
migration_cooldown = "1s"
[metrics]
port = 0
[control]
socket = "{self.socket}"
state = "{folder}/state"
timeout = "2s"
"""
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(SCRIPT), "--config", str(self.config)]
        command += ["--stuck", str(self.stuck)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/daemon:{ROOT}/tests/support"}
        environment["OPENBLAS_NUM_THREADS"] = "1"  # as `tierd run` does
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)
        wait_for(lambda: self.url, "the service listens")

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(ENOUGH_S)

    @property
    def url(self) -> str:
        found = re.search(r"event=metrics_listening url=(\S+)", self.log.read_text())
        return found[1] if found else ""

    def tierd(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "import sys, tierd.cli; sys.exit(tierd.cli.main())"]
        command += [args[0], "--config", str(self.config), *args[1:]]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/daemon"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=ENOUGH_S, check=False, env=environment
        )

    def status(self) -> dict[str, Any]:
        done = self.tierd("status", "--json")
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def figures(self) -> dict[str, float]:
        with urllib.request.urlopen(self.url, timeout=ENOUGH_S) as answer:
            lines = answer.read().decode().splitlines()
        return {k: float(v) for k, _, v in (x.rpartition(" ") for x in lines if x[0] != "#")}


@pytest.fixture(scope="module")
def target() -> Iterator[int]:
    """A process with some memory."""
    hold = "m = bytearray(b'x') * (32 << 20); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture
def host(tmp_path: Path, target: int) -> Iterator[Host]:
    made = Host(tmp_path, target)
    made.start()
    try:
        yield made
    finally:
        assert made.process is not None
        made.process.kill()
        made.process.wait(ENOUGH_S)


def as_nobody(act: Callable[[], bool]) -> bool:
    """Whether `act` returns true in a process of another user."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            code = 0 if act() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 2)
    return os.waitstatus_to_exitcode(status) == 0


def test_the_commands_work_on_a_running_service(host: Host):
    wait_for(lambda: host.status()["totals"]["promoted_pages"], "pages are promoted")
    told = host.status()
    assert [tier["name"] for tier in told["tiers"]] == ["dram", "cxl"]
    assert told["source"]["active"] == "steady"
    assert told["hottest"][0]["pid"] > 0
    assert told["metrics"] == host.url
    shown = host.tierd("status").stdout
    assert "promote cxl > dram" in shown
    assert "source   steady" in shown
    screen = host.tierd("top", "--count", "2", "--interval", "0.2").stdout
    assert "PER SECOND (since start)" in screen
    assert "records of steady" in screen

    events = host.tierd("events", "--json", "--count", "2").stdout.splitlines()
    assert {json.loads(line)["kind"] for line in events} <= {"moves", "held back"}

    done = host.tierd("set", "migration.rate_limit=3MB/s", "--persist")
    assert "is in force" in done.stdout
    assert host.status()["migration"]["bytes_per_second"] == 3_000_000
    assert 'rate_limit = "3MB/s"' in (host.folder / "conf.d/90-set.toml").read_text()
    wrong = host.tierd("set", "migration.rate_limi=3")
    assert wrong.returncode == ExitCode.FAILURE
    assert "did you mean 'rate_limit'" in wrong.stderr


def test_a_pause_outlives_the_service_and_resume_ends_it(host: Host):
    assert host.tierd("pause", "--reason", "incident 7").returncode == 0
    assert host.figures()["tierd_paused"] == 1
    moved = host.status()["totals"]["moved_bytes"]
    assert host.stop() == 0
    assert not host.socket.exists()
    host.start()
    wait_for(lambda: host.status()["loop"]["ticks"] > 20, "it ticks")
    told = host.status()
    assert told["paused"]["reason"] == "incident 7"
    assert told["totals"]["moved_bytes"] == 0
    assert moved >= 0
    assert host.tierd("resume").stdout == "resumed\n"
    wait_for(lambda: host.status()["totals"]["promoted_pages"], "it moves again")
    assert host.stop() == 0
    assert "will start paused" in host.tierd("pause").stdout
    assert "will not start paused" in host.tierd("resume").stdout
    assert host.tierd("status").returncode == ExitCode.UNAVAILABLE


def test_another_user_can_neither_read_nor_control(host: Host):
    for folder in (host.folder, *host.folder.parents):
        if str(folder) not in ("/", "/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)

    def connects() -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(str(host.socket))
            except PermissionError:
                return False
        return True

    def is_answered() -> bool:
        """With the file's rights out of the way, the peer's credentials still count."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ENOUGH_S)
            connection.connect(str(host.socket))
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(b'{"command": "pause"}\n')
            answer = json.loads(connection.makefile("rb").readline())
        return answer["ok"] or answer["error"]["kind"] != "denied"

    assert connects()
    assert not as_nobody(connects)
    host.socket.chmod(0o666)
    assert as_nobody(connects)
    assert not as_nobody(is_answered)
    assert host.figures()["tierd_paused"] == 0
    assert host.figures()['tierd_control_connections_total{result="denied"}'] == 2


def test_a_stuck_loop_is_told_by_commands_and_does_not_stop_a_scrape_or_the_kill_switch(host: Host):
    host.stuck.touch()
    wait_for(lambda: host.tierd("status").returncode == ExitCode.TIMEOUT, "the loop is stuck")
    assert "did not answer within 2 s" in host.tierd("status").stderr
    before = host.figures()["tierd_ticks_total"]
    assert host.figures()["tierd_ticks_total"] == before
    paused = host.tierd("pause")
    assert paused.returncode == 0
    assert host.figures()["tierd_paused"] == 1
    host.stuck.unlink()
    wait_for(lambda: host.figures()["tierd_ticks_total"] > before, "it turns again")
    assert host.status()["paused"]


def test_top_draws_on_a_terminal_and_ends_with_q(host: Host):
    command = [sys.executable, "-c", "import sys, tierd.cli; sys.exit(tierd.cli.main())"]
    command += ["top", "--config", str(host.config), "--interval", "0.3"]
    child, terminal = pty.fork()
    if not child:
        try:
            os.environ |= {"PYTHONPATH": f"{ROOT}/daemon", "TERM": "xterm"}
            os.execv(command[0], command)
        finally:
            os._exit(127)
    seen = b""
    try:
        until = time.monotonic() + ENOUGH_S
        while b"PER SECOND" not in seen and time.monotonic() < until:
            seen += os.read(terminal, 65536)
        os.write(terminal, b"q")
        with contextlib.suppress(OSError):  # EIO: the terminal's other end is closed
            while os.read(terminal, 65536):
                pass
        _, status = os.waitpid(child, 0)
        child = 0
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        os.close(terminal)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert b"CAPACITY" in seen


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def prometheus(host: Host, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus server that scrapes the service."""
    program = find("prometheus")
    assert program is not None, "prometheus is missing (config/setup.sh)"
    folder = tmp_path / "prometheus"
    folder.mkdir()
    target = host.url.removeprefix("http://").removesuffix("/metrics")
    (folder / "prometheus.yml").write_text(
        f"""
global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}
rule_files: ["{ROOT}/config/prometheus/tierd.rules.yml"]
scrape_configs:
  - job_name: tierd
    static_configs: [{{ targets: ["{target}"] }}]
"""
    )
    address = f"127.0.0.1:{free_port()}"
    command = [program, f"--config.file={folder}/prometheus.yml", f"--web.listen-address={address}"]
    command += [f"--storage.tsdb.path={folder}/data", "--log.level=warn"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            wait_for(lambda: fetch(address, "/-/ready", plain=True), "Prometheus is ready")
            yield address
        finally:
            process.kill()


def fetch(address: str, path: str, *, plain: bool = False) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=ENOUGH_S) as answer:
        return answer.read() if plain else json.loads(answer.read())["data"]


def test_a_real_prometheus_scrapes_and_an_alert_fires_on_a_refused_reload(
    host: Host, prometheus: str
):
    def value(query: str) -> float | None:
        result = fetch(prometheus, f"/api/v1/query?query={query}")["result"]
        return float(result[0]["value"][1]) if result else None

    assert wait_for(lambda: value("tierd_migrated_pages_total"), "it has scraped moves") > 0
    assert value("tierd_config_last_reload_successful") == 1
    targets = fetch(prometheus, "/api/v1/targets")["activeTargets"]
    assert [(t["health"], t["lastError"]) for t in targets] == [("up", "")]
    rules = fetch(prometheus, "/api/v1/rules")["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}

    def firing() -> list[str]:
        alerts = fetch(prometheus, "/api/v1/alerts")["alerts"]
        return [a["labels"]["alertname"] for a in alerts if a["state"] == "firing"]

    assert "TierdReloadFailed" not in firing()
    good = host.config.read_text()
    host.config.write_text(good + "\n[migration]\nrat = 5\n")
    assert host.process is not None
    host.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "TierdReloadFailed" in firing(), "the alert fires")
    assert host.status()["config"]["last_reload_ok"] is False
    host.config.write_text(good)
    host.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "TierdReloadFailed" not in firing(), "the alert ends")


def test_a_hang_up_while_it_starts_is_a_reload_once_it_runs(tmp_path: Path) -> None:
    """A pipe among the files holds the start up where the first of them was read already."""
    main, pipe = tmp_path / "tierd.toml", tmp_path / "conf.d/10.toml"
    text = f'[metrics]\nenabled = false\n[control]\nenabled = false\nstate = "{tmp_path}"\n'
    main.write_text(text)
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    log = tmp_path / "log"
    command = [sys.executable, "-c", "import sys, tierd.cli; sys.exit(tierd.cli.main())"]
    command += ["run", "--wait", "--dry-run", "--config", str(main)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/daemon"}
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=environment)
    try:
        with pipe.open("w") as held:  # opens when the service reads it
            process.send_signal(signal.SIGHUP)
            pipe.unlink()
            main.write_text(text + "[migration]\nretries = 9\n")
            held.write("[migration]\nretries = 1\n")
        wait_for(
            lambda: process.poll() is not None or "event=reloaded" in log.read_text(), "a word"
        )
        assert "changed=migration.retries" in log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENOUGH_S) == 0, log.read_text()


def test_no_thread_keeps_a_capability_that_it_has_no_use_for(host: Host) -> None:
    """Those that talk to clients have none; the loop's has what its sources may need again."""
    from tierd.config.model import Config
    from tierd.core.process import NUMBERS
    from tierd.engine.process import needed

    assert host.process is not None
    wait_for(lambda: "event=privileges_dropped" in host.log.read_text(), "it gives them up")
    most = sum(1 << NUMBERS[name] for name in needed(Config()))
    own = dict(
        line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("Cap")
    )  # fmt: skip
    main, nothing = 0, 0
    for task in Path(f"/proc/{host.process.pid}/task").iterdir():
        status = (task / "status").read_text()
        held = {x: int(y, 16) for x, y in re.findall(r"^(Cap\w+):\t(\w+)$", status, re.MULTILINE)}
        assert held["CapEff"] == held["CapPrm"]
        assert held["CapPrm"] & ~most == 0
        nothing += held["CapPrm"] == 0
        if int(task.name) == host.process.pid:
            main = held["CapPrm"]
            assert held["CapBnd"] & ~most == 0
    assert main == int(own["CapPrm"], 16) & most
    assert nothing >= 2  # figures and control socket
    # It still does its work: moves are planned, and clients are answered.
    assert host.status()["source"]

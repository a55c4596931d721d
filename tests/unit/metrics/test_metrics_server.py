# SPDX-License-Identifier: Apache-2.0
"""The metrics endpoint: paths, authentication, TLS, and clients that misbehave."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from tierd.config.serving import MetricsConfig
from tierd.config.whole import loads
from tierd.core.errors import ConfigError, UnavailableError
from tierd.observe.metrics import auth, server
from tierd.observe.metrics import families as f
from tierd.observe.metrics.server import MetricsServer
from tierd.observe.metrics.values import Values

HASH = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()


def config(**keys: Any) -> MetricsConfig:
    given = {"port": 0, **keys}
    lines = [f"{key} = {value!r}" for key, value in given.items()]
    return loads("[metrics]\n" + "\n".join(lines)).metrics


@contextlib.contextmanager
def serving(metrics: MetricsConfig, **options: Any) -> Iterator[MetricsServer]:
    values = Values()
    values.add(f.TICKS, 42)
    values.publish()
    made = MetricsServer(metrics, lambda: values.snapshot, **options)
    made.start()
    try:
        yield made
    finally:
        made.close()


def get(
    port: int, path: str = "/metrics", user: str = "", tls: ssl.SSLContext | None = None
) -> tuple[int, str]:
    """Status and body."""
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=120, context=tls)
    )
    headers = {}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_latest_snapshot_is_served():
    with serving(config()) as made:
        status, body = get(made.port)
        assert status == 200
        assert "tierd_ticks_total 42.0" in body.splitlines()
        assert "process_resident_memory_bytes" in body
        assert get(made.port, "/")[0] == 200
        assert get(made.port, "/elsewhere")[0] == 404
        assert 'tierd_metrics_refused_requests_total{reason="not_found"} 1.0' in get(made.port)[1]


def test_the_end_does_not_wait_for_the_servers_interval(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_POLL_S", 3600.0)
    with serving(config()) as made:
        assert get(made.port)[0] == 200
        ending = threading.Thread(target=made.close, daemon=True)
        ending.start()
        ending.join(60)
        assert not ending.is_alive()


def test_health_is_that_of_the_loop():
    well = [True]
    with serving(config(), healthy=lambda: well[0]) as made:
        assert get(made.port, "/-/healthy")[0] == 200
        well[0] = False
        assert get(made.port, "/-/healthy")[0] == 503


def test_only_who_knows_the_password_may_read():
    with serving(config(users=[f"prom:{HASH}"])) as made:
        assert get(made.port)[0] == 401
        for wrong in ("prom:wrong", "prom:", "other:s3cret", "prom:s3cret\0x", "prom"):
            assert get(made.port, user=wrong)[0] == 401
        for _ in range(2):  # checked, then remembered
            assert get(made.port, user="prom:s3cret")[0] == 200
        body = get(made.port, user="prom:s3cret")[1]
        assert 'tierd_metrics_refused_requests_total{reason="unauthorized"} 6.0' in body


@pytest.mark.parametrize("header", ["", "Basic", "Basic !!!", "Basic /w==", "Bearer x", "x" * 5000])
def test_a_header_that_is_none_lets_nobody_in(header: str):
    assert not auth.BasicAuth([f"prom:{HASH}"]).permits(header)


def test_passwords_are_never_in_errors_or_plain_in_the_configuration():
    with pytest.raises(ConfigError) as caught:
        config(users=["prom:plain-password"])
    assert "plain-password" not in str(caught.value)
    assert "htpasswd" in str(caught.value)
    with pytest.raises(ConfigError, match="cost 31"):
        config(users=[f"prom:$2b$31${HASH[7:]}"])
    with pytest.raises(ConfigError, match="twice"):
        config(users=[f"prom:{HASH}", f"prom:{HASH}"])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return cert, key


def test_with_a_certificate_https_is_spoken_and_plain_http_is_not(
    certificate: tuple[Path, Path],
):
    cert, key = certificate
    context = ssl.create_default_context(cafile=str(cert))
    with serving(config(tls_cert=str(cert), tls_key=str(key))) as made:
        assert made.url.startswith("https://127.0.0.1:")
        assert get(made.port, tls=context)[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            get(made.port)
        with pytest.raises(ssl.SSLCertVerificationError):
            get(made.port, tls=ssl.create_default_context())
        assert get(made.port, tls=context)[0] == 200


def test_a_client_that_does_not_shake_hands_holds_up_nobody(certificate: tuple[Path, Path]):
    cert, key = certificate
    context = ssl.create_default_context(cafile=str(cert))
    with (
        serving(config(tls_cert=str(cert), tls_key=str(key))) as made,
        socket.create_connection(("127.0.0.1", made.port)),
    ):
        assert get(made.port, tls=context)[0] == 200


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path):
    (tmp_path / "c.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"metrics\.tls_cert"):
        MetricsServer(config(tls_cert=f"{tmp_path}/c.pem", tls_key="/nowhere"), None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tls_key: is needed too"):
        config(tls_cert="/a.pem")


def test_a_port_that_is_taken_is_named():
    with serving(config()) as made, pytest.raises(UnavailableError, match=f"port {made.port}"):
        MetricsServer(config(port=made.port), None)  # type: ignore[arg-type]


def test_more_clients_than_are_served_are_hung_up_on():
    with serving(config()) as made, contextlib.ExitStack() as stack:
        for _ in range(server.MOST_CLIENTS):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", made.port)))
            held.sendall(b"GET /metrics HT")
        with pytest.raises((OSError, http.client.HTTPException)):
            get(made.port)
        stack.close()
        for _ in range(12_000):
            time.sleep(0.01)
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, body = get(made.port)
                break
        assert status == 200
        assert 'tierd_metrics_refused_requests_total{reason="busy"}' in body


def test_a_silent_client_is_hung_up_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "IDLE_S", 0.2)
    with (
        serving(config()) as made,
        socket.create_connection(("127.0.0.1", made.port), timeout=120) as silent,
    ):
        assert silent.recv(100) == b""


def test_a_trickling_client_is_hung_up_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "LONGEST_S", 0.2)
    with (
        serving(config()) as made,
        socket.create_connection(("127.0.0.1", made.port), timeout=120) as slow,
    ):
        slow.sendall(b"GET /met")
        assert slow.recv(100) == b""


@pytest.mark.parametrize("said", [b"\x00\xff\n\n", b"GET\n\n", b"POST /metrics HTTP/1.1\r\n\r\n"])
def test_what_is_no_scrape_leaves_the_endpoint_at_work(said: bytes):
    with serving(config()) as made:
        with socket.create_connection(("127.0.0.1", made.port), timeout=120) as odd:
            odd.sendall(said)
            odd.shutdown(socket.SHUT_WR)
            while odd.recv(1000):
                pass
        assert get(made.port)[0] == 200

# SPDX-License-Identifier: Apache-2.0
"""The HTTP endpoint that serves the figures, and the collector that a scrape reads.

Paths: /metrics, /-/healthy (503 once the loop has not ended a tick for some time), and /.
A scrape reads a published snapshot, in its own thread.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tierd.config.serving import MetricsConfig
from tierd.core.errors import ConfigError, UnavailableError
from tierd.observe.metrics.auth import BasicAuth
from tierd.observe.metrics.families import FAMILIES, SCRAPES_REFUSED, Family, Type
from tierd.observe.metrics.values import BUCKETS, COUNT, SUM, Extra, Labels, Snapshot

log = logging.getLogger(__name__)

MOST_CLIENTS: Final = 8
"""Requests served at a time; one more is hung up on."""
IDLE_S: Final = 10.0
"""A client that says nothing for so long is hung up on."""
LONGEST_S: Final = 60.0
"""A connection that has lasted so long is hung up on, whatever its client still sends."""
_INDEX: Final = b"""<!doctype html><html lang="en"><head><title>tierd</title></head>
<body><h1>tierd</h1><p><a href="/metrics">Metrics</a></p></body></html>
"""
_TEXT: Final = "text/plain; charset=utf-8"

_POLL_S: Final = 1.0
"""Time after which the thread wakes where nobody connects."""


class MetricsServer:
    """Serves from its own threads between `start` and `close`.

    Raises:
        UnavailableError: the address cannot be listened on, or a library is missing.
        ConfigError: the certificate or key cannot be used.
    """

    def __init__(
        self,
        config: MetricsConfig,
        snapshot: Callable[[], Snapshot],
        *,
        extras: Sequence[Extra] = (),
        healthy: Callable[[], bool] = lambda: True,
    ) -> None:
        auth = BasicAuth(config.users)
        tls = _Tls(config) if config.tls_cert else None
        family = socket.AF_INET6 if ":" in config.address else socket.AF_INET
        try:
            self._server = _Server((config.address, config.port), family, tls)
        except OSError as error:
            raise UnavailableError(
                f"cannot serve metrics on {config.address} port {config.port}: {error.strerror}",
                hint="is another program there? choose another metrics.port",
            ) from error
        self._scheme = "https" if tls else "http"
        self._server.registry = make_registry(snapshot, [*extras, self._refused])
        self._server.auth = auth
        self._server.healthy = healthy
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="tierd-metrics", daemon=True
        )

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where the figures are."""
        host = str(self._server.server_address[0])
        host = f"[{host}]" if ":" in host else host
        return f"{self._scheme}://{host}:{self.port}/metrics"

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def _refused(self) -> Mapping[str, Mapping[Labels, float]]:
        counts = dict(self._server.counts)
        return {SCRAPES_REFUSED: {(reason,): float(n) for reason, n in counts.items()}}

    def close(self) -> None:
        """Stop listening; answers on their way may be cut off."""
        if self._thread.is_alive():
            # The thread wakes at once, in place of after its interval.
            with contextlib.suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Tls:
    """A server's TLS context that takes in renewed files."""

    def __init__(self, config: MetricsConfig) -> None:
        self._files = (Path(config.tls_cert), Path(config.tls_key))
        self._lock = threading.Lock()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._stamp = self._load()
        except OSError as error:
            raise ConfigError(
                "metrics.tls_cert", f"cannot use it with {config.tls_key}: {error}"
            ) from error

    def _load(self) -> tuple[int, ...]:
        stamp = tuple(file.stat().st_mtime_ns for file in self._files)
        self._context.load_cert_chain(*self._files)
        return stamp

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Shake hands; the connection's time limit counts."""
        with self._lock, contextlib.suppress(OSError):  # half-written files: the old ones stay
            if tuple(file.stat().st_mtime_ns for file in self._files) != self._stamp:
                self._stamp = self._load()
                log.info("event=metrics_certificate_renewed")
        return self._context.wrap_socket(connection, server_side=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16
    registry: CollectorRegistry
    auth: BasicAuth
    healthy: Callable[[], bool]

    def __init__(self, address: tuple[str, int], family: int, tls: _Tls | None) -> None:
        self.address_family = family
        self.counts: Counter[str] = Counter()
        self._tls = tls
        self._slots = threading.Semaphore(MOST_CLIENTS)
        self._open: dict[int, tuple[float, socket.socket]] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the name service for this host's name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.counts["busy"] += 1
            self.shutdown_request(request)
            return
        request.settimeout(IDLE_S)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        number = threading.get_ident()
        self._open[number] = (time.monotonic() + LONGEST_S, request)
        try:
            if self._tls is not None:
                try:
                    request = self._tls.wrap(request)
                except OSError:  # what speaks no TLS, or hangs up
                    self.counts["tls"] += 1
                    self.shutdown_request(request)
                    return
                self._open[number] = (self._open[number][0], request)
            super().process_request_thread(request, client_address)
        finally:
            del self._open[number]
            self._slots.release()

    def service_actions(self) -> None:
        now = time.monotonic()
        for until, request in list(self._open.values()):
            if now > until:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hung up, or spoke no HTTP.
        self.counts["broken"] += 1
        log.debug("event=metrics_request_broken", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "tierd"
    sys_version = ""

    def do_GET(self) -> None:
        if not self.server.auth.permits(self.headers.get("Authorization")):
            self.server.counts["unauthorized"] += 1
            self._answer(
                HTTPStatus.UNAUTHORIZED,
                b"Unauthorized\n",
                extra={"WWW-Authenticate": 'Basic realm="tierd", charset="UTF-8"'},
            )
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encoder, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, encoder(self.server.registry), kind)
        elif path == "/-/healthy":
            well = self.server.healthy()
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, b"tierd is healthy\n" if well else b"the loop is stuck\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, _INDEX, "text/html; charset=utf-8")
        else:
            self.server.counts["not_found"] += 1
            self._answer(HTTPStatus.NOT_FOUND, b"Not found; /metrics is here\n")

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        kind: str = _TEXT,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("event=metrics_request %s", format % args)


class TierdCollector(Collector):
    """Reads the latest snapshot at each scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot], extras: Iterable[Extra] = ()) -> None:
        self._snapshot = snapshot
        self._extras = list(extras)

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are checked by tests, not at each start."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families with a value."""
        snapshot = self._snapshot()
        values = dict(snapshot.values)
        for extra in self._extras:
            values.update(extra())
        for family in FAMILIES.values():
            if family.type is Type.HISTOGRAM:
                yield _histogram(family, snapshot)
            elif family.type is Type.SUMMARY:
                yield _summary(family, values[family.name])
            else:
                yield _plain(family, values[family.name])


def _plain(family: Family, series: Mapping[Labels, float]) -> Metric:
    kind = CounterMetricFamily if family.type is Type.COUNTER else GaugeMetricFamily
    metric: CounterMetricFamily | GaugeMetricFamily = kind(
        family.name, family.help, labels=family.labels
    )
    for labels, value in sorted(series.items()):
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, snapshot: Snapshot) -> Metric:
    count, buckets = 0, []
    for bound, more in zip((*BUCKETS, float("inf")), snapshot.buckets, strict=True):
        count += more
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(count)))
    metric = HistogramMetricFamily(family.name, family.help)
    metric.add_metric((), buckets, snapshot.seconds)
    return metric


def _summary(family: Family, series: Mapping[Labels, float]) -> Metric:
    """`SummaryMetricFamily` has no quantiles."""
    metric = Metric(family.name, family.help, "summary")
    for (*labels, part), value in series.items():
        own = dict(zip(family.labels, labels, strict=True))
        if part in (SUM, COUNT):
            metric.add_sample(f"{family.name}_{part}", own, value)
        else:
            metric.add_sample(family.name, own | {"quantile": part}, value)
    return metric


def make_registry(
    snapshot: Callable[[], Snapshot], extras: Iterable[Extra] = ()
) -> CollectorRegistry:
    """A registry of tierd's own families and those of its process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TierdCollector(snapshot, extras))
    ProcessCollector(registry=registry)
    return registry

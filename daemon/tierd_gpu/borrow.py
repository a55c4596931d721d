# SPDX-License-Identifier: Apache-2.0
"""`Loan`: memory of a neighbour GPU, for a program that fills it itself as a cache.

Needs libtierd-gpu.so and nothing else of tierd, so that a program may take this file along:

    with Loan("libtierd-gpu.so", home=0, neighbour=1) as loan:
        loan.want(8 << 30)
        address = loan.alloc(64 << 20)       # None: more than is granted now
        ...
        if loan.state().excess:              # select on loan.fileno() to be woken for it
            loan.free(address)

What the calls promise is in daemon/native/gpu/tierd_gpu.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from typing import Any

SOCKET = "/run/tierd/gpu.sock"


class _Options(ctypes.Structure):
    _fields_ = (
        ("driver", ctypes.c_char_p), ("socket", ctypes.c_char_p), ("name", ctypes.c_char_p),
        ("device", ctypes.c_int), ("role", ctypes.c_int), ("max_chunks", ctypes.c_uint32),
        ("inflight", ctypes.c_uint32), ("clock_ns", ctypes.c_void_p),
    )  # fmt: skip


class _State(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("wanted", "granted", "held", "due_ns"))


@dataclass(frozen=True, slots=True)
class LoanState:
    """What a loan is now, in bytes.

    Attributes:
        wanted, granted, held: what was asked for, may be held, and is held.
        due_ns: by when (`time.monotonic_ns`) what is held above the grant must be freed; 0:
            nothing is.
        served: a daemon is there.
    """

    wanted: int
    granted: int
    held: int
    due_ns: int
    served: bool

    @property
    def excess(self) -> int:
        """Bytes to be freed."""
        return max(0, self.held - self.granted)


class Loan:
    """A loan of one program on one neighbour.

    Args:
        library: path of libtierd-gpu.so.
        home: CUDA ordinal of the GPU that computes.
        neighbour: of the GPU whose memory is wanted.
        socket: where the daemon listens.
        driver: the driver library.
        name: shown by `tierd gpu show`.

    Raises:
        OSError: there is no such library, driver or GPU.
    """

    def __init__(
        self, library: str, *, home: int, neighbour: int, socket: str = SOCKET,
        driver: str = "libcuda.so.1", name: str = "loan",
    ) -> None:  # fmt: skip
        self._lib = ctypes.CDLL(library)
        self._neighbour = neighbour
        self._client = ctypes.c_void_p()
        options = _Options(
            driver.encode(), socket.encode(), name.encode(), home, 0, 1, 0, None
        )  # its role is neither of those of chunks
        self._call("tg_open", ctypes.byref(options), ctypes.byref(self._client))

    def _call(self, name: str, *args: Any, allow: tuple[int, ...] = ()) -> int:
        status = int(getattr(self._lib, name)(*args))
        if status < 0 and -status not in allow:
            raise OSError(-status, f"{name}: {os.strerror(-status)}")
        return status

    def __enter__(self) -> Loan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free all that is held and leave."""
        if self._client:
            self._lib.tg_close(self._client)
            self._client = ctypes.c_void_p()

    def want(self, size: int) -> bool:
        """Say how many bytes are wanted; whether a daemon was there to be told."""
        args = (self._client, self._neighbour, ctypes.c_uint64(size))
        return not self._call("tg_loan_want", *args, allow=(errno.ENOTCONN,))

    def state(self) -> LoanState:
        """What the loan is now."""
        out = _State()
        args = (self._client, self._neighbour, ctypes.byref(out))
        status = self._call("tg_loan_state", *args, allow=(errno.ENOTCONN, errno.ENODEV))
        return LoanState(out.wanted, out.granted, out.held, out.due_ns, not status)

    def alloc(self, size: int) -> int | None:
        """The address of a new block; None: more than is granted, or nobody grants."""
        at = ctypes.c_uint64()
        args = (self._client, self._neighbour, ctypes.c_size_t(size), ctypes.byref(at))
        full = (errno.ENOSPC, errno.ENOTCONN, errno.ENODEV, errno.ENOMEM)
        return None if self._call("tg_loan_alloc", *args, allow=full) else at.value

    def free(self, address: int) -> None:
        """Give a block back; waits for kernels under way."""
        self._call("tg_loan_free", self._client, ctypes.c_uint64(address))

    def used(self) -> None:
        """What is there was of use."""
        self._call("tg_loan_used", self._client, self._neighbour)

    def fileno(self) -> int:
        """Readable when the grant has changed (an eventfd: read 8 bytes)."""
        return self._call("tg_loan_fd", self._client)

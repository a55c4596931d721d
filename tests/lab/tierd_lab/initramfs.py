# SPDX-License-Identifier: Apache-2.0
"""An addition to virtme-ng's initramfs: the root file system with a cache.

virtme-ng mounts the host's root over 9p without any cache, so that each file
looked up or read is a round trip out of the guest. A second archive behind the
first one replaces `mount`, and a guest's Python starts twice as fast.
"""

from __future__ import annotations

from typing import Final

CACHE: Final = "loose"
"""9p cache mode (Linux, Documentation/filesystems/9p.rst): the guest keeps what it has
seen of the root, so later changes on the host may stay unseen. Shared folders are
mounted later, without a cache."""

_MOUNT: Final = f"""#!/bin/sh
for argument; do
    shift
    case $argument in
    *trans=virtio*) argument=$argument,cache={CACHE} ;;
    esac
    set -- "$@" "$argument"
done
exec busybox mount "$@"
"""


def cpio_entry(name: str, body: bytes, mode: int, inode: int, mtime: int = 0) -> bytes:
    """One member of a "newc" cpio archive.

    Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, mtime, len(body), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + path
    return head + b"\0" * (-len(head) % 4) + body + b"\0" * (-len(body) % 4)


def root_cache_archive(before: int) -> bytes:
    """What to append to an initramfs of `before` bytes."""
    return (
        b"\0" * (-before % 512)
        + cpio_entry("bin/mount", _MOUNT.encode(), 0o100755, 1)
        + cpio_entry("TRAILER!!!", b"", 0, 0)
    )

# SPDX-License-Identifier: Apache-2.0
"""A kernel that set-up installs is there, or the module's checks fail; they are not left out."""

from __future__ import annotations

import kernels
import pytest


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A host without any kernel that the module can be built for."""
    monkeypatch.setattr(kernels, "buildable", lambda _: None)
    return monkeypatch


def system(host: pytest.MonkeyPatch, name: str, version: str) -> None:
    told = {"ID": name, "VERSION_ID": version}
    host.setattr(kernels.platform, "freedesktop_os_release", lambda: told)


def test_what_debian_12_has_must_be_there(host: pytest.MonkeyPatch) -> None:
    system(host, "debian", "12")
    for release in kernels.RELEASES:
        with pytest.raises(AssertionError, match=r"setup\.sh"):
            kernels.required(release)


def test_elsewhere_only_the_old_release_is_left_out(host: pytest.MonkeyPatch) -> None:
    system(host, "debian", "13")
    with pytest.raises(pytest.skip.Exception):
        kernels.required(kernels.OLD)
    with pytest.raises(AssertionError):
        kernels.required(kernels.RELEASES[0])

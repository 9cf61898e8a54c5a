"""Fixtures for every test: a real sshd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sshd import SSHD_MISSING, Sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One server for a module; tests that break it start their own."""
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as server:
        yield server

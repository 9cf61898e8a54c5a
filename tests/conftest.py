"""For every test: a real sshd, and how property tests choose their examples."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from sshd import SSHD_MISSING, Sshd

# The same examples on every machine, so that a red run can be made again; `HYPOTHESIS_PROFILE=explore` draws new ones.
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("explore")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One server for a module; tests that break it start their own."""
    if SSHD_MISSING:
        pytest.skip(SSHD_MISSING)
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as server:
        yield server

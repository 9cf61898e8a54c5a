"""A folder of tokpit's own and a real sshd for each module of the real tier."""

from __future__ import annotations

import pytest
from real_line import Tokpit

from sshd import Sshd


@pytest.fixture(scope="module")
def tokpit(tmp_path_factory: pytest.TempPathFactory, sshd: Sshd) -> Tokpit:
    """tokpit's command line; its inventory has the one host `real`."""
    return Tokpit(tmp_path_factory.mktemp("tokpit"), sshd)

"""What the tests share: the program, and small results of it."""

from __future__ import annotations

import os

import pytest

import mmscale

os.environ.setdefault("MPLBACKEND", "Agg")

#: Runs of some milliseconds.
SMALL = dict(cpus=[2, 4], shape="fill", quick=True, progress=False)


@pytest.fixture(scope="session")
def pair() -> mmscale.Results:
    """One machine, two arms, seven seeds: enough pairs for changes that hold."""
    return mmscale.run("churn", cpus=4, shape="fill", policy="lru=lazy", seeds=7, quick=True)


@pytest.fixture(scope="session")
def swept() -> mmscale.Results:
    """Four points: CPUs and a parameter."""
    return mmscale.run("churn", **SMALL, arm=["stock", "lazy"], seeds=2, set={"pages": [1, 4]})


def pytest_collection_modifyitems(items) -> None:
    """Tests cannot run without the program: say so once, not in each."""
    if items:
        try:
            mmscale.find_binary()
        except mmscale.BinaryNotFound as why:
            pytest.exit(str(why), 2)

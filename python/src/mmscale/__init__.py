"""mmscale for Python: runs, results, sweeps.

The package calls the program ``mmscale`` and reads its documents; it computes no result itself.

>>> import mmscale
>>> results = mmscale.run("churn", cpus=[8, 32], shape="fill", policy="lru=lazy", seeds=2)
>>> results.compare()  # changes over pairs of seeds
>>> results.plot()  # curves with 95 % intervals

``mmscale.studies``, ``mmscale.policies``, ``mmscale.profiles`` and ``mmscale.linux`` are what the
program knows, with completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _catalog
from ._binary import find_binary, version
from ._compare import Changes
from ._errors import BinaryNotFound, CallError, MmscaleError, RunError, SweepError
from ._results import Result, Results, Robustness, read
from ._run import robust, run
from ._settle import Settlement, settle
from ._sweep import Sweep, plan, sweep
from ._tools import compare, explain, letter, whatif

if TYPE_CHECKING:
    from ._catalog import Named, Names, Profile, Study

    studies: Names[Study]
    policies: Names[Names[Named]]
    profiles: Names[Profile]
    linux: Names[Named]

_LISTS = ("studies", "policies", "profiles", "linux")

__all__ = [
    "BinaryNotFound",
    "CallError",
    "Changes",
    "MmscaleError",
    "Result",
    "Results",
    "Robustness",
    "RunError",
    "Settlement",
    "Sweep",
    "SweepError",
    "compare",
    "explain",
    "find_binary",
    "letter",
    "linux",
    "plan",
    "policies",
    "profiles",
    "read",
    "robust",
    "run",
    "settle",
    "studies",
    "sweep",
    "version",
    "whatif",
]


def __getattr__(name: str) -> Any:
    if name in _LISTS:
        return getattr(_catalog, name)()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__"])

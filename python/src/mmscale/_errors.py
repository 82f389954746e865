"""Errors of this package. Each has the message of the program that found the problem."""

from __future__ import annotations

from typing import Any


class MmscaleError(Exception):
    """Base class of all errors of this package."""


class BinaryNotFound(MmscaleError):
    """The program ``mmscale`` was not found."""


class CallError(MmscaleError, ValueError):
    """The call was wrong: nothing was started or written (exit code 2)."""


class RunError(MmscaleError, RuntimeError):
    """A run or a check failed (exit code 1), or the program was killed.

    ``results`` has the documents that were complete, or is ``None``. ``returncode`` is negative if
    a signal ended the program.
    """

    def __init__(self, message: str, returncode: int = 1, results: Any | None = None):
        super().__init__(message)
        self.returncode = returncode
        self.results = results

    def __reduce__(self):  # Executors pass errors between processes.
        return (type(self), (self.args[0], self.returncode))


class SweepError(MmscaleError, RuntimeError):
    """Some runs of a sweep have no result.

    ``sweep`` has the results of all others. The same call again runs only those that are missing.
    """

    def __init__(self, message: str, sweep: Any | None = None):
        super().__init__(message)
        self.sweep = sweep


class MissingLibrary(MmscaleError, ImportError):
    """A library that is not part of this package is not installed."""


def need(module: str, extra: str) -> Any:
    """Imports an optional library, and says how to install it where it is missing."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as why:
        top = module.split(".")[0]
        message = f"this needs the library `{top}`: pip install {top}, or install the wheel of"
        raise MissingLibrary(f"{message} mmscale with its extra, FILE.whl[{extra}]") from why

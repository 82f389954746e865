"""What the program can run, with completion: studies, policies, profiles, versions of Linux.

All of it is asked from the program, once. Names are strings, so that they can be passed on:
``mmscale.run(mmscale.studies.churn, policy=[mmscale.policies.lru.lazy])``.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from . import _html
from ._binary import find_binary, listing

T = TypeVar("T")


def identifier(name: str) -> str:
    """Returns a name as Python can write it after a dot: ``x86-512`` is ``x86_512``."""
    text = re.sub(r"\W", "_", name)
    return f"{text}_" if keyword.iskeyword(text) or text[:1].isdigit() else text


class Names(Mapping[str, T], Generic[T]):
    """Things by name: ``names["x86-512"]``, or ``names.x86_512`` with completion."""

    def __init__(self, title: str, entries: dict[str, T]):
        self._title, self._entries = title, entries
        self._attributes = {identifier(name): name for name in entries}

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(self._entries)
            raise KeyError(f"no {self._title} is named {name!r} (known: {known})") from None

    def __getattr__(self, name: str) -> T:
        if name.startswith("_") or name not in self._attributes:
            known = ", ".join(self.__dict__.get("_attributes", {}))
            title = self.__dict__.get("_title", "entry")
            raise AttributeError(f"no {title} is named {name!r} (known: {known})")
        return self._entries[self._attributes[name]]

    def __dir__(self) -> list[str]:
        return [*self._attributes, "keys", "values", "items", "get"]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        lines = (f"  {name:<16} {getattr(one, 'help', '')}" for name, one in self.items())
        return "\n".join([f"{self._title}:", *lines])

    def _repr_html_(self) -> str:
        rows = [[name, getattr(one, "help", "")] for name, one in self.items()]
        return _html.table([self._title, "what it is"], rows)


class Named(str):
    """A name with its description. It is the string that the program takes."""

    help: str
    data: Mapping[str, Any]

    def __new__(cls, text: str, help: str = "", data: Mapping[str, Any] = {}):
        named = super().__new__(cls, text)
        named.help, named.data = help, data
        return named

    def __getnewargs__(self):  # Copies and pickles keep the description.
        return (str(self), self.help, self.data)


class Profile(Named):
    """A machine profile, with its number of CPUs and nodes."""

    @property
    def cpus(self) -> int:
        """CPUs of the machine."""
        return self.data["cpus"]

    @property
    def nodes(self) -> int:
        """Memory nodes of the machine."""
        return self.data["nodes"]


class Study(Named):
    """A study or script: its arms, parameters and metrics."""

    @property
    def arms(self) -> Names[Named]:
        """The arms, starting with the one to compare with."""
        return _names("arm", self.data["arms"])

    @property
    def params(self) -> Names[Named]:
        """The parameters, for ``set={name: value}``."""
        return _names("parameter", self.data["params"])

    @property
    def metrics(self) -> Names[Named]:
        """The metrics. ``.data["headline"]`` says which are tested together."""
        return _names("metric", self.data["metrics"])

    @property
    def headlines(self) -> list[str]:
        """The names of the metrics that are tested together."""
        return [one["name"] for one in self.data["metrics"] if one["headline"]]

    def run(self, **options: Any):
        """Runs the study: :func:`mmscale.run` with this name."""
        from ._run import run

        return run(self, **options)


def _names(title: str, rows: list[Mapping[str, Any]]) -> Names[Named]:
    def text(row: Mapping[str, Any]) -> str:
        unit, span = row.get("unit"), row.get("range")
        notes = [note for note in (unit and f"[{unit}]", row["help"], span and f"({span})") if note]
        return " ".join(notes)

    return Names(title, {row["name"]: Named(row["name"], text(row), row) for row in rows})


def studies() -> Names[Study]:
    """Returns all studies and built-in scripts by name."""
    found = listing(find_binary())
    rows = [*found["studies"], *found["scripts"]]
    return Names("study", {row["name"]: Study(row["name"], row["summary"], row) for row in rows})


def profiles() -> Names[Profile]:
    """Returns all built-in machine profiles by name."""

    def entry(row: Mapping[str, Any]) -> Profile:
        return Profile(row["name"], f"{row['cpus']} CPUs; {row['description']}", row)

    rows = listing(find_binary())["profiles"]
    return Names("profile", {row["name"]: entry(row) for row in rows})


def policies() -> Names[Names[Named]]:
    """Returns all mechanisms by key, each with its policies by name."""

    def mechanism(row: Mapping[str, Any]) -> Names[Named]:
        def policy(one: Mapping[str, Any]) -> Named:
            return Named(f"{row['key']}={one['name']}", one["help"], one)

        return Names(f"{row['key']} policy", {one["name"]: policy(one) for one in row["policies"]})

    rows = listing(find_binary())["policies"]
    return Names("mechanism", {row["key"]: mechanism(row) for row in rows})


def linux() -> Names[Named]:
    """Returns the versions of Linux for ``linux=``."""
    rows = listing(find_binary())["linux"]
    named = {
        row["version"]: Named(
            row["version"], ", ".join(f"{k}={v}" for k, v in row["policies"].items()), row
        )
        for row in rows
    }
    return Names("version of Linux", named)

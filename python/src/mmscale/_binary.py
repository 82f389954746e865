"""The program ``mmscale``: where it is, and how it is called."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._errors import BinaryNotFound, CallError, RunError

NAME = "mmscale"


def _is_program(path: Path) -> bool:
    """Returns whether a file is the program, and not a script that starts with an interpreter."""
    try:
        with path.open("rb") as file:
            return os.access(path, os.X_OK) and file.read(2) != b"#!"
    except OSError:
        return False


def _places() -> Iterator[Path]:
    """Yields where the program may be: beside the package, in the folders of scripts, on PATH."""
    yield Path(__file__).parent / NAME
    yield Path(sysconfig.get_path("scripts")) / NAME
    # `pip install --user` and `pip install --target`.
    if os.name == "posix":
        yield Path(sysconfig.get_path("scripts", scheme="posix_user")) / NAME
    yield Path(__file__).parent.parent / "bin" / NAME
    found = shutil.which(NAME)
    if found:
        yield Path(found)


def find_binary() -> str:
    """Returns the path of the program.

    It is taken from the environment variable ``MMSCALE_BIN``, else from the wheel that has this
    package, else from ``PATH``.
    """
    chosen = os.environ.get("MMSCALE_BIN")
    if chosen:
        if "\0" in chosen or not os.access(chosen, os.X_OK) or Path(chosen).is_dir():
            raise BinaryNotFound(f"MMSCALE_BIN is `{chosen}`, which is not a program")
        return str(Path(chosen).resolve())
    for place in _places():
        if _is_program(place):
            return str(place)
    raise BinaryNotFound(
        "there is no program `mmscale` in this package or on PATH: install the wheel, or set "
        "MMSCALE_BIN to its path"
    )


def message_of(stderr: str) -> str:
    """Returns the message of a failed call: the lines after the first ``error: ``."""
    lines = stderr.strip().splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("error: ")]
    if not starts:
        return "\n".join(lines[-3:]) or "no message"
    kept = [line for line in lines[starts[0] :] if not line.startswith("For more information")]
    return "\n".join(line.removeprefix("error: ") for line in kept).strip()


def failure(returncode: int, stderr: str) -> Exception:
    """Returns the error of a call that ended with this exit code."""
    if returncode == 2:
        return CallError(message_of(stderr))
    if returncode < 0:
        return RunError(f"mmscale was ended by signal {-returncode}", returncode)
    return RunError(message_of(stderr), returncode)


def call(
    args: Sequence[str],
    *,
    binary: str | None = None,
    input: str | None = None,
    told: Callable[[str], None] | None = None,
    env: Mapping[str, str] | None = None,
) -> Answer:
    """Calls the program and waits for it; does not check the exit code.

    ``told`` gets each line of the program's standard error while it runs.
    """
    command = [binary or find_binary(), *args]
    for word in args:
        if "\0" in word:
            raise CallError(f"{word!r} has a NUL character, which no argument can have")
    with _file() as out, _file() as text:
        if input is not None:
            text.write(input)
            text.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=text if input is not None else subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env=None if env is None else {**os.environ, **env},
            )
        except OSError as why:
            raise BinaryNotFound(f"`{command[0]}` cannot be started: {why.strerror}") from why
        lines = []
        errors = process.stderr
        assert errors is not None, "it is a pipe"
        try:
            for line in errors:
                lines.append(line)
                if told:
                    told(line.rstrip("\n"))
            returncode = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            errors.close()
        out.seek(0)
        return Answer(returncode, out.read(), "".join(lines))


def _file() -> Any:
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")


def parsed(text: str) -> Any:
    """Returns what the program printed as JSON; raises an error if it is none."""
    try:
        return json.loads(text)
    except ValueError as why:
        shown = text if len(text) <= 60 else f"{text[:60]}.."
        what = f"`{find_binary()}` printed {shown!r}, which is no JSON"
        raise RunError(f"{what}: set MMSCALE_BIN to the program `mmscale`") from why


def documents(text: str, schema: str) -> list[dict[str, Any]]:
    """Returns the documents of a schema that the program printed, one a line."""
    lines = [parsed(line) for line in text.splitlines()]
    return [one for one in lines if schema_of(one).startswith(schema)]


def schema_of(document: Any) -> str:
    """Returns the name of a document's schema; nothing if it is no document."""
    found = document.get("schema") if isinstance(document, Mapping) else None
    return found if isinstance(found, str) else ""


class Answer:
    """What a call of the program printed, and its exit code."""

    def __init__(self, returncode: int, stdout: str, stderr: str):
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr

    def check(self) -> str:
        """Returns the standard output; raises the error of a failed call."""
        if self.returncode != 0:
            raise failure(self.returncode, self.stderr)
        return self.stdout


@functools.lru_cache(maxsize=8)
def listing(binary: str) -> dict:
    """Returns what the program can run, as it lists it."""
    found = parsed(call(["list", "--format", "json"], binary=binary).check())
    if not isinstance(found, dict) or "studies" not in found:
        raise RunError(f"`{binary}` lists no studies: set MMSCALE_BIN to the program `mmscale`")
    return found


def version() -> str:
    """Returns the version of the program, with the sources that it was built from."""
    return call(["--version"]).check().split(" ", 1)[-1].strip()


def main() -> None:
    """Runs the program with the arguments of this process (``python -m mmscale``)."""
    program = find_binary()
    os.execv(program, [program, *sys.argv[1:]])

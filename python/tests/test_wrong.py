"""Bad input: each has an error of this package, with a sentence."""

from __future__ import annotations

import json

import pytest
from test_binary import script

import mmscale

SMALL = dict(cpus=2, shape="fill", quick=True, seeds=1, arm="stock")


def refused(match, call):
    with pytest.raises(mmscale.MmscaleError, match=match) as caught:
        call()
    return caught.value


def test_no_value_is_read_as_an_option():
    refused("no study or script named `--help`", lambda: mmscale.run("--help"))
    refused("no study or script named `--version`", lambda: mmscale.robust("--version"))
    refused("--help", lambda: mmscale.plan("--help"))
    refused("--help", lambda: mmscale.letter("--help"))


def test_arguments_of_the_wrong_kind_are_refused():
    refused("NUL character", lambda: mmscale.run("a\0b"))
    refused("set='pages=1024' is no mapping", lambda: mmscale.run("churn", set="pages=1024"))
    refused("quick='no' is neither True nor False", lambda: mmscale.run("churn", quick="no"))
    refused("expected a number", lambda: mmscale.run("churn", cpus="eight"))
    refused("no value of a sweep", lambda: mmscale.plan({"study": "churn", "cpus": object()}))


@pytest.mark.parametrize("wrong", [{"jobs": -1}, {"jobs": 0}, {"chunk": 0}, {"retries": -1},
                                   {"chunk": "2"}])  # fmt: skip
def test_numbers_of_a_sweep_have_ranges(wrong, tmp_path):
    name = next(iter(wrong))
    refused(f"{name}=.* is not allowed: use a whole number from",
            lambda: mmscale.sweep({"study": "churn"}, folder=tmp_path, **wrong))  # fmt: skip


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"schema":5}', "no documents of runs"),
        (b"[]", "no documents of runs"),
        (b'{"schema":"mmscale/run/3"}', "not complete: `study` is missing"),
        (b'{"schema":', "is not a document of mmscale"),
        (b"\xff\xfe{}", "not text in UTF-8"),
    ],
)
def test_files_that_are_no_documents_are_refused(content, why, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    refused(why, lambda: mmscale.read(tmp_path))
    refused(why, lambda: mmscale.read(tmp_path / "a.json"))


def test_a_document_without_its_arms_metrics_is_refused(pair, tmp_path):
    document = {**pair[0].document, "arms": [{"arm": "stock", "seeds": [1]}]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    refused("`metrics` is missing", lambda: mmscale.read(tmp_path))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("true", "MMSCALE_BIN"),
        ("echo '{}'", "MMSCALE_BIN"),
        ("echo not json", "printed 'not json.*MMSCALE_BIN"),
        (r"printf '\377\n'; printf '\377\n' >&2", "MMSCALE_BIN"),
        (r"printf 'error: \377\n' >&2; exit 2", "\ufffd"),
    ],
)
def test_another_program_is_named(lines, why, tmp_path, monkeypatch):
    monkeypatch.setenv("MMSCALE_BIN", str(script(tmp_path / "other", lines)))
    refused(why, lambda: mmscale.run("churn", **SMALL))
    refused(why, lambda: mmscale.plan({"study": "churn"}))
    refused(why, lambda: mmscale.studies)


def test_what_is_no_program_cannot_be_started(tmp_path, monkeypatch):
    path = script(tmp_path / "broken", "")
    path.write_bytes(b"\x7fELF and nothing else")
    monkeypatch.setenv("MMSCALE_BIN", str(path))
    found = refused("cannot be started", lambda: mmscale.run("churn"))
    assert isinstance(found, mmscale.BinaryNotFound)


def test_a_missing_library_is_named_and_no_index_is_asked_for_this_package(monkeypatch):
    from mmscale import _errors

    with pytest.raises(ImportError, match="pip install nothing_of_this_name") as caught:
        _errors.need("nothing_of_this_name", "frames")
    assert isinstance(caught.value, mmscale.MmscaleError)
    assert "pip install 'mmscale" not in str(caught.value)

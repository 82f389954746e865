"""Bad input of every kind: each ends in an error of this package with a sentence."""

from __future__ import annotations

import json

import pytest

import mmscale
from mmscale import _binary

from test_binary import script

TINY = dict(cpus=2, shape="fill", quick=True, seeds=1, arm="stock", progress=False)


@pytest.mark.parametrize("word", ["--help", "--version", "--on=live", "-o"])
def test_a_name_is_never_an_option(word):
    with pytest.raises(mmscale.CallError, match="no study or script named"):
        mmscale.run(word, **TINY)
    with pytest.raises(mmscale.CallError, match="no study or script named"):
        mmscale.robust(word, progress=False)
    with pytest.raises(mmscale.CallError, match="cannot read|No such file"):
        mmscale.plan(word)


@pytest.mark.parametrize(
    "options, says",
    [
        (dict(set="pages=1024"), "give a dictionary"),
        (dict(quick="no"), "quick is 'no': give True or False"),
        (dict(check=1), "check is 1: give True or False"),
        (dict(replace="yes"), "replace is 'yes'"),
        (dict(profile="a\0b"), "NUL"),
        (dict(cpus="eight"), "eight"),
    ],
)
def test_a_wrong_option_is_named(options, says):
    with pytest.raises(mmscale.CallError, match=says):
        mmscale.run("churn", **{**TINY, **options})


@pytest.mark.parametrize(
    "options, says",
    [
        (dict(jobs=-1), "jobs is -1: give a whole number of 1 or more"),
        (dict(jobs=0), "jobs is 0"),
        (dict(chunk=0), "chunk is 0"),
        (dict(retries=1.5), "retries is 1.5"),
        (dict(parquet="no"), "parquet is 'no'"),
    ],
)
def test_a_wrong_option_of_a_sweep_starts_nothing(tmp_path, options, says):
    with pytest.raises(mmscale.CallError, match=says):
        mmscale.sweep({"study": "churn"}, folder=tmp_path / "new", **options)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("spec", [7, None, {"study": object()}])
def test_a_spec_is_a_dictionary_or_a_path(spec):
    with pytest.raises(mmscale.CallError, match="spec"):
        mmscale.plan(spec)


@pytest.mark.parametrize(
    "content, says",
    [
        (b"\xff\xfe", "not UTF-8"),
        (b'{"schema": 5}', "no documents"),
        (b"[1]", "not a document of mmscale"),
        (b"{", "not a document of mmscale"),
        (b"[" * 100_000, "not a document of mmscale"),
        (b'{"schema": "mmscale/run/3"}', "not a complete document: it has no `arms`"),
    ],
)
def test_a_damaged_document_is_named(tmp_path, content, says):
    file = tmp_path / "damaged.json"
    file.write_bytes(content)
    for path in (file, tmp_path):
        with pytest.raises(mmscale.CallError, match=says):
            mmscale.read(path)


def test_a_folder_or_nothing_in_place_of_a_document_is_named(tmp_path):
    (tmp_path / "folder.json").mkdir()
    for path in (tmp_path, tmp_path / "gone.json"):
        with pytest.raises(mmscale.CallError, match="cannot read .*(folder|gone).json"):
            mmscale.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "exit 0",
        "echo 7",
        "echo '{}'",
        "echo '[]'",
        "printf '\\377\\376'",
        "echo '{\"schema\": \"mmscale/other/1\"}'",
    ],
)
def test_another_program_is_recognized(tmp_path, monkeypatch, text):
    monkeypatch.setenv("MMSCALE_BIN", str(script(tmp_path / "other", text)))
    calls = [
        lambda: mmscale.run("churn", progress=False),
        lambda: mmscale.robust("churn", progress=False),
        lambda: mmscale.plan({"study": "churn"}),
        lambda: mmscale.studies,
        mmscale.version,
    ]
    for call in calls:
        with pytest.raises(mmscale.MmscaleError, match="MMSCALE_BIN|analyses"):
            call()


def test_a_file_that_cannot_be_executed_is_named(tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.write_bytes(b"\x7fELF")
    empty.chmod(0o755)
    monkeypatch.setenv("MMSCALE_BIN", str(empty))
    with pytest.raises(mmscale.BinaryNotFound, match="cannot start .*empty"):
        mmscale.version()


def test_standard_error_that_is_no_text_is_no_second_error(tmp_path, monkeypatch):
    text = "printf 'error: \\377 broke\\n' >&2; exit 1"
    monkeypatch.setenv("MMSCALE_BIN", str(script(tmp_path / "odd", text)))
    with pytest.raises(mmscale.RunError, match="broke"):
        mmscale.version()


def test_a_damaged_run_of_a_sweep_is_named(tmp_path):
    spec = {"study": "churn", "cpus": 2, "shape": "fill", "quick": True, "seeds": 1, "arm": "stock"}
    found = mmscale.sweep(spec, folder=tmp_path, progress=False, parquet=False)
    (file,) = (tmp_path / "runs").glob("*.json")
    document = json.loads(file.read_text())
    document["arms"][0]["seeds"] = [2]
    file.write_text(json.dumps(document))
    with pytest.raises(mmscale.CallError, match="the document of another run"):
        mmscale.Sweep(spec, tmp_path, found.tasks).finished
    file.write_text(json.dumps({"schema": "mmscale/run/3"}))
    with pytest.raises(mmscale.CallError, match="not a complete document"):
        mmscale.Sweep(spec, tmp_path, found.tasks).runs


def test_a_missing_library_is_named_by_its_own_name(monkeypatch):
    with pytest.raises(ImportError, match="pip install no_such_library"):
        mmscale._errors.need("no_such_library.part", "plot")


def test_arguments_with_options_come_before_the_studies():
    assert _binary.find_binary()
    from mmscale import _run

    assert _run.studies(["churn", "reap"]) == ["--", "churn", "reap"]

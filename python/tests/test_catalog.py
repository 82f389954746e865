"""What the program knows, with completion."""

from __future__ import annotations

import copy
import pickle

import pytest

import mmscale


def test_names_complete_and_are_strings():
    assert {"churn", "vmstat", "purge"} <= set(dir(mmscale.studies))
    assert mmscale.profiles.x86_512 == "x86-512" and mmscale.profiles.x86_512.cpus == 512
    assert mmscale.policies.lru.lazy == "lru=lazy"
    assert "lazy" in dir(mmscale.policies.lru)
    assert mmscale.linux["6.18"].data["policies"]["lru"] == "stock"
    assert "x86-512" in mmscale.profiles._ipython_key_completions_()


def test_a_study_has_arms_parameters_and_metrics():
    churn = mmscale.studies.churn
    assert {"stock", "lazy"} <= set(churn.arms)
    assert churn.params.madvise.data["names"] and "[pages]" in churn.params.pages.help
    assert "ops_per_s" in churn.headlines
    result = churn.run(cpus=2, shape="fill", arm="stock", seeds=1, quick=True)
    assert result[0].study == "churn"


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="known: .*churn"):
        mmscale.studies.chrun
    with pytest.raises(KeyError, match="known: .*x86-512"):
        mmscale.profiles["x86-513"]


def test_names_are_copied_with_their_description():
    lazy = mmscale.policies.lru.lazy
    for other in (copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        assert (other, other.help) == (lazy, lazy.help)
    names = copy.copy(mmscale.profiles)
    assert names["x86-2"] == "x86-2"


def test_lists_show_what_they_have():
    assert "x86-512" in repr(mmscale.profiles)
    assert "<table>" in mmscale.studies._repr_html_() and "churn" in mmscale.studies._repr_html_()
    assert {"run", "sweep", "studies"} <= set(dir(mmscale))
    with pytest.raises(AttributeError):
        mmscale.nothing

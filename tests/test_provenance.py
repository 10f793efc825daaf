"""What a measurement says about the source it was made with."""

import re

import pytest

from mgrade._provenance import commit


def test_a_checkout_says_its_own_commit(monkeypatch):
    monkeypatch.delenv("MGRADE_COMMIT", raising=False)
    said = commit()
    assert said is None or re.fullmatch("[0-9a-f]{40}( with changes)?", said)


@pytest.mark.parametrize("given", ["d4e8bde", "d4e8bdeb974596b50545f195512bc318785c52db", "d4e8bde with changes"])
def test_where_there_is_no_git_one_can_be_given(monkeypatch, given):
    monkeypatch.setenv("MGRADE_COMMIT", given)
    assert commit() == given


@pytest.mark.parametrize("given", ["COMMIT_PLACEHOLDER", "main", "d4e8bd", "D4E8BDE", "d4e8bde\n"])
def test_what_is_no_commit_is_refused(monkeypatch, given):
    monkeypatch.setenv("MGRADE_COMMIT", given)
    with pytest.raises(ValueError, match=r"^MGRADE_COMMIT must be 7 to 64 hexadecimal digits, got ") as raised:
        commit()
    assert repr(given)[:80] in str(raised.value)

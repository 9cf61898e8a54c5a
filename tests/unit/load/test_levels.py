from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokpit.load.levels import MAX_LEVEL, parse_levels


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1,4,8", [1, 4, 8]),
        ("3", [3]),
        ("1-8", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("2..4", [2, 3, 4]),
        ("1,2,4..64x2", [1, 2, 4, 8, 16, 32, 64]),
        ("4..50x3", [4, 12, 36]),
        ("10..45+10", [10, 20, 30, 40]),
        ("  1 , 4 ,\t8 ", [1, 4, 8]),
        ("1 4 8", [1, 4, 8]),
        ("8, 1", [8, 1]),
        ("1, 4 .. 16 x 2", [1, 4, 8, 16]),
    ],
)
def test_level_lists_read_as_written(text: str, levels: list[int]) -> None:
    assert parse_levels(text) == levels


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no level"),
        (" ,", "no level"),
        ("1,x", "'x'"),
        ("1,,4", "an empty item"),
        ("-4", "'-4'"),
        ("0", "starts at 1"),
        ("0-3", "starts at 1"),
        ("9-3", "backwards"),
        ("4..64x1", "factor of at least 2"),
        ("4..64+0", "step of at least 1"),
        ("1,4,4", "twice"),
        ("1-3,2", "twice"),
        ("99999", str(MAX_LEVEL)),
        ("1-100000", "more than"),
        ("1.5", "'1.5'"),
        ("²", "'²'"),
    ],
)
def test_a_bad_level_list_is_one_sentence_that_names_the_fault(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        parse_levels(text)
    assert "\n" not in str(error.value)


@given(st.lists(st.integers(1, MAX_LEVEL), min_size=1, max_size=20, unique=True))
def test_any_plain_list_comes_back(levels: list[int]) -> None:
    assert parse_levels(",".join(map(str, levels))) == levels


@given(st.text(alphabet="0123456789,.-x+ ", max_size=20))
def test_no_text_does_anything_but_levels_or_a_value_error(text: str) -> None:
    try:
        levels = parse_levels(text)
    except ValueError:
        return
    assert levels
    assert all(1 <= level <= MAX_LEVEL for level in levels)

"""The values of any JSON text are counted right, whatever stands in its strings and wherever it is sliced."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.http import parsing
from gateway.api.http.errors import ApiError

TEXTS = st.text(st.sampled_from('a\\",[{\n\u20ac'), max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.integers() | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=30
)


def marks(value: Any) -> int:
    """Its brackets that open, and its commas."""
    if not isinstance(value, list | dict):
        return 0
    inner: Any = value if isinstance(value, list) else list(value.values())
    return 1 + max(0, len(inner) - 1) + sum(marks(each) for each in inner)


@given(VALUES, st.integers(1, 40), st.booleans())
def test_strings_hold_no_values(value: Any, slice_bytes: int, ascii_only: bool) -> None:
    sent, exact = json.dumps(value, ensure_ascii=ascii_only).encode(), marks(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "_SLICE", slice_bytes)
        patch.setattr(parsing, "MOST_VALUES", exact)
        parsing.require_bounded(sent)
        patch.setattr(parsing, "MOST_VALUES", exact - 1)
        with pytest.raises(ApiError):
            parsing.require_bounded(sent)


@given(st.sampled_from(["1e400", "-1E+999", "NaN", "Infinity", "-Infinity"]), st.integers(1, 40))
def test_a_strange_number_is_found_in_any_slice(number: str, slice_bytes: int) -> None:
    harmless = f'{{"a": "NaN", "b": [{"1e10, " * 9}1e-400], "c": '
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "_SLICE", slice_bytes)
        parsing.require_bounded(f"{harmless}0}}".encode())
        with pytest.raises(ApiError):
            parsing.require_bounded(f"{harmless}{number}}}".encode())

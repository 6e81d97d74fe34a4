"""Tests that are tables: the arguments of a call, and last what it gives or how its error reads."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from roofline.errors import Error


def refused(call: Callable[..., Any], *cases: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], None]:
    """A test of each case: words of the error."""

    @pytest.mark.parametrize("case", cases, ids=[str(case[-1])[:80] for case in cases])
    def test(case: tuple[Any, ...]) -> None:
        *arguments, words = case
        with pytest.raises(Error, match=words):
            call(*arguments)

    return test


def gives(call: Callable[..., Any], *cases: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], None]:
    """A test of each case: what is given."""
    said = (" ".join(map(str, case[:-1])) for case in cases)

    @pytest.mark.parametrize("case", cases, ids=[re.sub(r" at 0x\w+", "", words)[:80] for words in said])
    def test(case: tuple[Any, ...]) -> None:
        *arguments, expected = case
        assert call(*arguments) == expected

    return test

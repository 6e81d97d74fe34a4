"""Checks: passes, failures, calls that check nothing, and the table they make."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
from tables import refused

from roofline import Checks, Error, check


@pytest.mark.parametrize(
    ("found", "how", "passed"),
    [
        (295.37, {"equals": 295}, True),  # within 1 % unless another tolerance is given
        (298.0, {"equals": 295}, False),
        (298.0, {"equals": 295, "tolerance": 0.02}, True),
        (295, {"equals": 295, "tolerance": 0.0}, True),
        (295.0000001, {"equals": 295, "tolerance": 0.0}, False),
        (0.0, {"equals": 0}, True),
        (1e-9, {"equals": 0}, False),
        (345.2, {"above": 295}, True),
        (295.0, {"above": 295}, False),
        (62.7, {"below": 295, "above": 60}, True),
        (62.7, {"below": 295, "above": 63}, False),
        ([1.86, 1.75, 1.05], {"equals": 2, "tolerance": 0.1}, False),  # each must agree
        ([1.86, 1.95], {"equals": 2, "tolerance": 0.1}, True),
        ([1.0, 2.0], {"equals": [1, 2]}, True),
        ([1.0, 2.0], {"equals": [2, 1]}, False),
        ("DRAM", {"equals": "DRAM"}, True),
        ("DRAM", {"equals": "compute"}, False),
        ("DRAM", {"above": 1}, False),
        (True, {"equals": True}, True),
        (True, {"equals": 1}, False),
        (None, {"equals": 128}, False),  # a crossing that is not there
        (None, {"above": 128}, False),
        (float("nan"), {"equals": 1}, False),
        (float("nan"), {"above": 1}, False),
        (float("inf"), {"equals": float("inf")}, True),
        (np.float32(2.0), {"equals": 2}, True),
        (np.array([1.0, 5.0]), {"below": 4}, False),
    ],
)
def test_verdicts(found: Any, how: dict[str, Any], passed: bool) -> None:
    made = check("a claim", found, **how)
    assert made.passed is passed
    assert made.verdict == ("pass" if passed else "FAIL")


def test_what_it_says() -> None:
    made = check("An H100 needs 128 rows", 345.15, equals=128, tolerance=0.05, why="b d / (2 b + d)")
    assert (made.wanted, made.shown, made.why) == ("128 ± 5.0 %", "345.1", "b d / (2 b + d)")
    assert repr(made) == "FAIL: An H100 needs 128 rows (wanted 128 ± 5.0 %, found 345.1)"
    assert check("", [1, 2.5], above=0, below=3).wanted == "above 0, below 3"
    assert check("", None, equals="x").shown == "none"
    rate = check("", [3.35e12, 5e9], above=1e9, unit="FLOP/s")
    assert (rate.shown, rate.wanted) == ("3.35 TFLOP/s, 5 GFLOP/s", "above 1 GFLOP/s")
    assert check("", [0.0008, 1000, 1e-9], below=2000).shown == "0.0008, 1000, 1.000e-09"
    assert made.to_dict() == {
        "claim": "An H100 needs 128 rows", "wanted": "128 ± 5.0 %", "found": 345.15, "passed": False, "unit": "",
        "why": "b d / (2 b + d)",
    }  # fmt: skip


test_no_check_at_all = refused(
    lambda found, how: check("", found, **how),
    (1, {}, "give equals, above or below"),
    ([1, 2, 3], {"equals": [1, 2]}, "equals has 2 values for 3 found"),
    ([], {"equals": 1}, "found is empty"),
    (object(), {"equals": 1}, "found must be a number, a text"),
    (1, {"equals": 1, "tolerance": 5}, "tolerance must be a share"),
    (1, {"above": "1"}, "above must be a number, got '1'"),
)


def test_a_table_of_them() -> None:
    with pytest.raises(Error, match="Checks are made of what"):
        Checks([True])  # type: ignore[list-item]
    first = Checks([check("<b>one</b>", 1, equals=1)])
    both = first + Checks([check("two", 3, equals=2, why="it is three")])
    assert isinstance(both, Checks)
    assert (first.passed, both.passed, len(both)) == (True, False, 2)
    assert [each.claim for each in both.failed] == ["two"]
    assert first.table()[0] == ("verdict", "claim", "wanted", "found")
    assert both.table()[0][-1] == "why"
    assert "1 of 2 pass" in repr(both)
    html = both._repr_html_()
    root = ElementTree.fromstring(html)
    assert [[cell.text for cell in row][:2] for row in root.iter("tr")][1:] == [["pass", "<b>one</b>"], ["FAIL", "two"]]
    assert "color" not in html  # legible in dark themes
    assert [record["passed"] for record in both.to_records()] == [True, False]
    assert both[0]._repr_html_() == first._repr_html_()

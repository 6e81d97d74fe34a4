"""Units: prefixes for people, and what people write read back; against values worked out by hand."""

import math

import pytest
from hypothesis import example, given, strategies as st
from tables import gives, refused

from roofline.errors import Error
from roofline.units import (
    fmt_bytes,
    fmt_number,
    fmt_percent,
    fmt_share,
    fmt_shares,
    fmt_si,
    parse_bytes,
    parse_rate,
    parse_si,
    parse_time_s,
)

test_si = gives(
    fmt_si,
    (47.2e9, "B/s", "47.2 GB/s"),
    (0.0, "s", "0 s"),
    (3.4e-6, "s", "3.40 µs"),
    (999.4, "FLOP/s", "999 FLOP/s"),
    (999.6, "FLOP/s", "1.00 kFLOP/s"),  # rounding carries into the next prefix
    (999.96e9, "B/s", "1.00 TB/s"),
    (-12.34e3, "B", "-12.3 kB"),
    (1.0, "s", "1.00 s"),
    (2.5e21, "FLOP/s", "2500 EFLOP/s"),  # beyond the last prefix
    (2e-18, "s", "0.00200 fs"),
    (math.inf, "FLOP/s", "inf FLOP/s"),
    (None, "s", "–"),
)


test_numbers = gives(
    fmt_number,
    (5.7894, 3, "5.79"), (1234.0, 3, "1230"), (0.25, 3, "0.250"), (0.0999999, 3, "0.100"), (99.96, 3, "100"), (7.0, 1, "7"),
    (0, 3, "0"), (1e-5, 3, "1.00e-05"), (123456789.0, 3, "123000000"), (math.nan, 3, "nan"), (None, 3, "–"),
)  # fmt: skip


test_bytes = gives(
    fmt_bytes,
    (0, "0 B"),
    (17, "17 B"),
    (1023, "1023 B"),  # whole bytes are not rounded
    (1024, "1 KiB"),
    (1025, "1 KiB"),
    (1 << 20, "1 MiB"),
    (32 << 20, "32 MiB"),
    (3 << 29, "1.5 GiB"),
    (2**40 - 1, "1 TiB"),
    (1000 << 10, "1000 KiB"),
    (None, "–"),
)


test_percentages = gives(fmt_percent, (0.943, "94.3 %"), (1.31, "131 %"), (0.0012, "0.120 %"), (0.0, "0 %"), (None, "–"))


test_sizes_are_read = gives(
    parse_bytes,
    ("64KiB", 65536), ("64kib", 65536), ("64kB", 64000), ("1.5 GiB", 1610612736), ("2TiB", 2199023255552), ("4096", 4096),
    (4096, 4096), ("17 B", 17), ("1e3", 1000), (".5KiB", 512),
)  # fmt: skip


test_other_sizes_are_refused = refused(
    parse_bytes,
    ("64K", "write KiB .binary. or KB .decimal."),
    ("64m", "write miB"),
    ("64 furlongs", "unknown unit 'furlongs'; use KiB"),
    ("", "write a number and a unit"),
    ("-5KiB", "write a number and a unit"),
    ("nan", "write a number and a unit"),
    ("1e999", "write a number and a unit"),
    ("0.3KiB", "not a whole number of bytes"),
    *((beyond, "cannot read") for beyond in ("1e300TB", "1e308 GiB", "9" * 400 + "B")),
)


def test_rates_and_times_are_read() -> None:
    assert parse_si("47.2GB/s", "B/s") == pytest.approx(47.2e9, rel=1e-15)
    assert parse_si("1.5 TFLOP/s", "FLOP/s") == 1.5e12
    assert parse_si("250", "FLOP/s") == 250
    assert parse_si("1.5 TFLOPS", "FLOP/s") == parse_si("1.5TOP/s", "FLOP/s") == parse_rate("1500 GFLOP/s", "FLOP/s") == 1.5e12
    with pytest.raises(Error, match=r"'450' has no unit: write one of GB/s"):
        parse_rate("450", "B/s")
    assert parse_time_s("3.4us") == pytest.approx(3.4e-6, rel=1e-15)
    assert parse_time_s("3.4µs") == parse_time_s("3.4us") == parse_time_s("3.4μs")  # the micro sign and the Greek letter
    assert parse_time_s("20ms") == pytest.approx(0.02, rel=1e-15)
    assert parse_time_s("2 s") == parse_time_s("2") == 2
    assert parse_si("1e300s", "s") == 1e300


test_other_rates_are_refused = refused(parse_si, ("3 GiB/s", "B/s", "cannot read"))
test_other_times_are_refused = refused(
    parse_time_s, *((text, "cannot read") for text in ("3 min", "3 xs", "s", "1 2 s", "1e308Ps", "1e300Es", "9" * 400 + "s"))
)


@given(st.floats(min_value=1e-14, max_value=9e20), st.integers(min_value=1, max_value=6))
@example(0.995, 2)
def test_what_is_printed_lies_between_1_and_1000(value: float, digits: int) -> None:
    assert 1 <= float(fmt_si(value, "B/s", digits).split()[0]) < 1000


@given(st.floats(min_value=1e-14, max_value=9e20))
def test_what_is_printed_can_be_read(value: float) -> None:
    assert parse_si(fmt_si(value, "B/s"), "B/s") == pytest.approx(value, rel=0.0051)


def test_shares_that_no_print_shows() -> None:
    assert fmt_share(0.00005) == "0.00500 %"
    assert fmt_share(8.29e-18) == "< 0.01 %"
    assert (fmt_share(0.0), fmt_share(None), fmt_share(1.0)) == ("0 %", "–", "100 %")
    assert fmt_shares({"DRAM": 9.5, "link": 0.5, "overlap": 8e-16}, 10.0) == "DRAM 95.0 %, link 5.00 %"

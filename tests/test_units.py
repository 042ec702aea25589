import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.errors import UsageError
from topotune.units import (
    format_bytes,
    format_line_rate,
    format_rate,
    format_seconds,
    parse_bit_rate,
    parse_bytes,
    parse_seconds,
    parse_sizes,
)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("100B", 100),
        ("64K", 65536),
        ("64k", 65536),
        ("64KiB", 65536),
        ("64KB", 64000),
        ("1.5GiB", 1610612736),
        (" 8 M ", 8388608),
        ("0.5K", 512),
        ("1024T", 2**50),
    ],
)
def test_sizes_are_binary_unless_they_say_otherwise(text, num_bytes):
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no size in bytes"),
        ("K", "'K' is no size in bytes"),
        ("-1K", "'-1K' is no size in bytes"),
        ("1e3", "'1e3' is no size in bytes"),
        ("1_000", "'1_000' is no size in bytes"),
        ("1Q", "'1Q' is no size in bytes"),
        ("nan", "'nan' is no size in bytes"),
        ("٣K", "'٣K' is no size in bytes"),
        ("1.5", "'1.5' is 1.5 bytes, not a whole number"),
        ("0.3K", "'0.3K' is 307.2 bytes, not a whole number"),
        ("1025T", "'1025T' is more than 1024 TiB"),
        ("9" * 16, f"'{'9' * 16}' is no size in bytes"),
    ],
)
def test_what_is_no_size_is_refused(text, problem):
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("256K,8M", (262144, 8388608)),
        ("8M,256K,8M", (262144, 8388608)),
        ("1K:8K", (1024, 2048, 4096, 8192)),
        ("1K:64K:4", (1024, 4096, 16384, 65536)),
        ("1K:5K", (1024, 2048, 4096)),
        ("1K:1K", (1024,)),
        ("3,1K:2K", (3, 1024, 2048)),
    ],
)
def test_lists_and_ranges_of_sizes_are_ascending_and_unique(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no size in bytes"),
        ("1K,", "'' is no size in bytes"),
        ("1K:2K:3:4", "'1K:2K:3:4' is no range of sizes"),
        ("2K:1K", "'2K:1K' is an empty range of sizes: it runs from 2048 to 1024 bytes"),
        ("0:1K", "'0:1K' is an empty range of sizes: it runs from 0 to 1024 bytes"),
        ("1K:1M:1", "'1K:1M:1': the factor '1' is no whole number of at least 2"),
        ("1K:1M:1.5", "'1K:1M:1.5': the factor '1.5' is no whole number of at least 2"),
        ("0", "'0' has a size of 0 bytes"),
        (
            ",".join(map(str, range(1, 66))),
            f"'{','.join(map(str, range(1, 66)))}' gives 65 sizes, more than 64",
        ),
    ],
)
def test_what_are_no_sizes_is_refused(text, problem):
    with pytest.raises(UsageError) as caught:
        parse_sizes(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("90", 90), ("2m", 120), ("2min", 120), ("500ms", 0.5), ("1.5h", 5400), ("20us", 2e-5)],
)
def test_durations_are_in_seconds(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0", "'0' is no duration above 0"),
        ("0s", "'0s' is no duration above 0"),
        ("-5s", "'-5s' is no duration"),
        ("1d", "'1d' is no duration"),
        ("inf", "'inf' is no duration"),
        ("", "'' is no duration"),
    ],
)
def test_what_is_no_duration_is_refused(text, problem):
    with pytest.raises(UsageError) as caught:
        parse_seconds(text)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (100, "100 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (2.5 * 2**20, "2.5 MiB"),
        (64 * 2**20, "64 MiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_bytes_are_printed_in_binary_units(value, text):
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 µs"),
        (512e-6, "512 µs"),
        (0.99996e-3, "1 ms"),
        (1.234e-3, "1.23 ms"),
        (0.9999, "1 s"),
        (2.5, "2.5 s"),
        (123.4, "123 s"),
    ],
)
def test_seconds_are_printed_in_the_unit_that_fits(value, text):
    assert format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(229.2e9, "229 GB/s"), (1.5e9, "1.5 GB/s"), (1e8, "0.1 GB/s"), (5.2e7, "52 MB/s")],
)
def test_rates_are_printed_in_powers_of_1000(value, text):
    assert format_rate(value) == text


@pytest.mark.parametrize(("value", "text"), [(4e11, "400 Gbit/s"), (2e8, "200 Mbit/s")])
def test_line_rates_are_printed_as_on_the_label(value, text):
    assert format_line_rate(value) == text


@given(num_bytes=st.integers(0, 2**50))
def test_a_printed_size_reads_back_to_within_its_three_digits(num_bytes):
    shown = format_bytes(num_bytes)
    number, unit = shown.split()
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    assert float(number) * units[unit] == pytest.approx(num_bytes, rel=0.006)


@given(seconds=st.floats(1e-9, 1e5))
def test_a_printed_time_reads_back_to_within_its_three_digits(seconds):
    number, unit = format_seconds(seconds).split()
    assert float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1}[unit] == pytest.approx(seconds, rel=0.006)


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [("100Gbit", 100e9), ("25G", 25e9), ("200 Mbit/s", 200e6), ("1.5Tbps", 1.5e12), ("56gbit/s", 56e9)],
)
def test_rates_of_networks_are_decimal(text, bits_per_s):
    assert parse_bit_rate(text) == bits_per_s


@pytest.mark.parametrize("text", ["", "fast", "100", "0G", "-1G", "10GB", "1e3G", "G", "nan"])
def test_what_is_no_rate_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="is no rate of a network") as caught:
        parse_bit_rate(text)
    assert "25Gbit" in caught.value.hint

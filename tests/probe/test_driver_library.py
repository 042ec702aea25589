"""Questions to a GPU driver's library: what has no answer is not known."""

import pytest

from topotune.probe.driver_library import DriverLibrary, address_of, opened, word_of


class Failure(Exception):
    pass


class NotFound(Failure):
    pass


class Bindings:
    """Of a library that knows a name, lacks one question, and fails at another."""

    def __init__(self):
        self.asked = []

    def name(self, handle):
        self.asked.append("name")
        return b"  GPU   %d " % handle

    def lacking(self):
        self.asked.append("lacking")
        raise NotFound

    def failing(self):
        self.asked.append("failing")
        raise Failure


def test_what_the_whole_driver_lacks_is_asked_once_and_what_a_device_lacks_each_time():
    bindings = Bindings()
    driver = DriverLibrary(bindings, Failure, NotFound)
    for question in ("lacking", "failing", "older than these bindings") * 2:
        assert driver.ask(question) is None
    assert bindings.asked == ["lacking", "failing", "failing"]
    assert driver.word("name", 3) == "GPU 3"


@pytest.mark.parametrize("answer", [None, 3, "", "N/A", "two\nlines", "x" * 201, b"\x1b[31m", ["GPU"]])
def test_what_is_no_name_is_not_known(answer):
    assert word_of(answer) is None


@pytest.mark.parametrize(
    ("answer", "address"),
    [
        (b"00000000:4F:00.0", "0000:4f:00.0"),
        ("0000:05:00.0", "0000:05:00.0"),
        ("FFFFFFFF:FF:FF.0", None),
        (b"\xff\xfe", None),
        ("", None),
        (7, None),
    ],
)
def test_addresses_are_spelled_as_the_kernel_spells_them(answer, address):
    assert address_of(answer) == address


def test_a_library_is_closed_whatever_happens_and_never_where_it_did_not_open():
    done = []

    def interrupted():
        with opened(int, lambda: done.append("closed"), Failure) as why:
            assert why is None
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        interrupted()
    assert done == ["closed"]

    def refuse():
        raise Failure("no driver")

    with opened(refuse, lambda: done.append("closed"), Failure) as why:
        assert why == "no driver"
    assert done == ["closed"]

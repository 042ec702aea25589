"""``-v`` says what is done, also in the ranks that are started, and above lines that are drawn in place."""

import logging
import os

import pytest

from topotune.cli import narration

LOG = logging.getLogger("topotune.links")


@pytest.fixture(autouse=True)
def silence_again(monkeypatch):
    monkeypatch.delenv(narration.VARIABLE, raising=False)
    logger = logging.getLogger("topotune")
    former = logger.level
    yield
    for handler in [one for one in logger.handlers if type(one).__module__ == narration.__name__]:
        logger.removeHandler(handler)
    logger.setLevel(former)


def test_nothing_is_said_unless_asked_for(capsys):
    LOG.info("measured")
    narration.narrate_if_told()
    with narration.told_to_ranks():
        assert narration.VARIABLE not in os.environ
    assert not narration.is_narrated()
    assert capsys.readouterr() == ("", "")


def test_each_thing_is_one_line_on_stderr_however_often_it_is_asked_for(capsys):
    narration.narrate()
    narration.narrate()
    LOG.info("measured %d pairs", 12)
    LOG.debug("not this")
    assert capsys.readouterr() == ("", "- measured 12 pairs\n")


def test_ranks_are_told_while_they_are_started_and_nobody_else(monkeypatch):
    narration.narrate()
    with narration.told_to_ranks():
        assert os.environ[narration.VARIABLE] == "1"
    assert narration.VARIABLE not in os.environ
    monkeypatch.setenv(narration.VARIABLE, "0")
    with pytest.raises(KeyError), narration.told_to_ranks():
        raise KeyError
    assert os.environ[narration.VARIABLE] == "0"


def test_a_rank_that_is_told_says_what_it_does(monkeypatch):
    monkeypatch.setenv(narration.VARIABLE, "1")
    narration.narrate_if_told()
    assert narration.is_narrated()


def test_lines_go_above_what_is_drawn_in_place_and_back_to_stderr(capsys):
    narration.narrate()
    above = []
    with narration.notes_go_to(above.append):
        LOG.info("one")
        narration.say("two")
    narration.say("three")
    assert above == ["- one", "two"]
    assert capsys.readouterr().err == "three\n"

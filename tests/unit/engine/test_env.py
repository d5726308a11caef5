"""The environment: typed, prefixed, bad values are errors, unknown names are told."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from octavo.config.env import environment, read_environment, set_default
from octavo.config.logging import LineFormatter, configure_logging
from octavo.lib.errors import ConfigError


def test_values_are_typed() -> None:
    env = read_environment(
        {
            "OCTAVO_API_KEY": "k",
            "OCTAVO_NUM_THREADS": "3",
            "OCTAVO_HEALTH_STALL_S": "2.5",
            "OCTAVO_LOGGING_LEVEL": "debug",
            "OCTAVO_CPU_BIND": "NoBind",
        }
    )
    assert (env.cpu_bind, read_environment({}).cpu_bind) == ("nobind", "auto")
    assert (env.api_key, env.num_threads, env.health_stall_s, env.logging_level) == ("k", 3, 2.5, "DEBUG")
    assert env.unknown == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OCTAVO_NUM_THREADS", "two"),
        ("OCTAVO_NUM_THREADS", "-1"),
        ("OCTAVO_LOGGING_LEVEL", "LOUD"),
        ("OCTAVO_HEALTH_STALL_S", "nan"),
        ("OCTAVO_LOG_COLOR", "maybe"),
        ("OCTAVO_CPU_BIND", "0-3"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        read_environment({name: value})
    assert caught.value.param == name


def test_unknown_names_are_listed_and_others_left_alone() -> None:
    env = read_environment({"OCTAVO_NUM_THREAD": "1", "OCTAVO_TEST_X": "1", "HOME": "/x"})
    assert env.unknown == ("OCTAVO_NUM_THREAD",)


def test_the_cache_folder_follows_xdg() -> None:
    assert read_environment({"XDG_CACHE_HOME": "/c"}).cache_root == Path("/c/octavo")
    assert read_environment({"XDG_CACHE_HOME": "/c", "OCTAVO_CACHE_ROOT": "/d"}).cache_root == Path("/d")


def test_no_color_turns_colours_off() -> None:
    assert read_environment({}).log_color
    assert not read_environment({"NO_COLOR": "1"}).log_color


def test_set_up_warns_of_unknown_names_once_and_is_repeatable(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("octavo")
    before = (logger.handlers[:], logger.level, logger.propagate)
    try:
        for _ in range(2):
            configure_logging("test", read_environment({"OCTAVO_TYPO": "1"}))
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == 2
        assert all("OCTAVO_TYPO" in line and "\x1b" not in line for line in lines)
    finally:
        logger.handlers[:], logger.level, logger.propagate = before


def test_a_line_holds_time_level_and_process() -> None:
    record = logging.LogRecord("octavo.x", logging.WARNING, __file__, 1, "hello %d", (5,), None)
    plain = LineFormatter("engine", color=False).format(record)
    assert plain.endswith("WARNING engine: hello 5")
    assert LineFormatter("engine", color=True).format(record).startswith("\x1b[33m")


def test_a_default_is_for_children_too_and_yields_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ISA", "scalar")
    monkeypatch.setenv("OCTAVO_NUM_THREADS", "0")
    monkeypatch.delenv("OCTAVO_NUM_THREADS")
    environment.cache_clear()
    set_default("isa", "avx2")
    set_default("num_threads", "3")
    assert environment().isa == "scalar"
    assert environment().num_threads == 3
    assert os.environ["OCTAVO_NUM_THREADS"] == "3"
    monkeypatch.undo()
    environment.cache_clear()


def test_a_user_without_a_home_gets_a_cache_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    assert read_environment({}).cache_root.name == "octavo"

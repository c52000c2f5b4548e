"""Warnings of several threads, each to whoever collects in it."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from ghost_ray.errors import collected_warnings


def test_each_thread_collects_its_own_warnings_and_nothing_is_left_changed() -> None:
    filters, show = list(warnings.filters), warnings.showwarning
    together = threading.Barrier(4)

    def warn(number: int) -> list[str]:
        found = []
        for turn in range(20):
            together.wait()
            with collected_warnings() as collected:
                warnings.warn(f"{number} in turn {turn}", UserWarning, stacklevel=1)
                found += [str(warning) for warning in collected]
        return found

    with ThreadPoolExecutor(4) as pool:
        for number, found in enumerate(pool.map(warn, range(4))):
            assert found == [f"{number} in turn {turn}" for turn in range(20)]
    assert (warnings.filters, warnings.showwarning) == (filters, show)


def test_a_thread_that_does_not_collect_still_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: shown.append(str(message)))

    def warn(text: str) -> None:
        warnings.warn(text, UserWarning, stacklevel=1)

    with collected_warnings() as collected, ThreadPoolExecutor(1) as pool:
        pool.submit(warn, "elsewhere").result()
        with collected_warnings() as inner:
            warn("inside")
        warn("here")
    assert shown == ["elsewhere"]
    assert [str(warning) for warning in collected] == ["here"]
    assert [str(warning) for warning in inner] == ["inside"]

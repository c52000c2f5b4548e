"""Progress lines: count, rate and ETA, as they stand in a job's log."""

from __future__ import annotations

import pytest

from ghost_ray.progress import clock, line, progress, quietly, say


def test_a_line_has_count_share_rate_and_eta() -> None:
    assert line("fit", 3000, 10000, "rows", 2.0) == "fit: 3,000/10,000 rows (30 %), 1,500 rows/s, ETA 0:05"
    assert line("fit", 10, None, "rows", 4.0, "2 failed") == "fit: 10 rows, 2.5 rows/s, 2 failed"
    # More than an estimate said: no share above 100 % and no time left below 0.
    assert line("fit", 1600, 1281, "images", 4.0) == "fit: 1,600 images, 400 images/s"
    assert line("fit", 0, 0, "rows", 0.0, ending="done in") == "fit: 0/0 rows (100 %), 0.0 rows/s, done in 0:00"


def test_clock() -> None:
    assert [clock(s) for s in (0, 59.6, 61, 3661)] == ["0:00", "1:00", "1:01", "1:01:01"]


def test_without_a_terminal_the_end_is_always_told(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("fit", 3, "rows") as shown:
        for _ in range(3):
            shown.advance()
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("fit: 3/3 rows (100 %)")


def test_what_was_stopped_is_not_called_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), progress("extract", 3, "images") as shown:
        shown.advance()
        raise KeyboardInterrupt
    assert "stopped after 0:00" in (told := capsys.readouterr().err)
    assert "done" not in told


def test_quietly_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with quietly(), progress("fit", 3, "rows") as shown:
        shown.advance()
        shown.note("2 failed")
        say("a word beside it")
    assert capsys.readouterr().err == ""
    say("after it")
    assert capsys.readouterr().err == "after it\n"

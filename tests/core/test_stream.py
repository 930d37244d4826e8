"""What of a stream reaches the consumer, and when: the commit point, what comes after it, the end, and the clocks."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from forbear.core import stream
from forbear.core.stream import MODES, MOST_HELD, AfterContent, Delivery, Restarted, Signal, StreamSettings

CONTENT = Signal()
NOTE = Signal(content=False)
BEGIN = Signal(content=False, begins=("answer",))
END = Signal(content=False, ends=("answer",))
FAR = 1e9  # seconds left, where the deadline does not matter


def delivery(mode: AfterContent = "raise", **settings: Any) -> Delivery:
    return Delivery(StreamSettings(after_content=mode, **settings))


def take(
    body: Delivery, *chunks: tuple[Any, Signal], attempt: int = 1, now: float = 0.0, ended: bool = False
) -> list[Any]:
    """All that is handed over of these chunks, and of the end if it comes."""
    out = [one for chunk, signal in chunks for one in body.received(chunk, signal, attempt, now)]
    if ended:
        left = body.finished(attempt)
        assert left is not None
        out += left
    return out


START, PING = ("start", BEGIN), ("ping", NOTE)
A, B, C = ("a", CONTENT), ("b", CONTENT), ("c", CONTENT)
STOP = ("stop", END)


# ---- settings ----------------------------------------------------------------------------------------------------


def test_the_defaults_raise_and_have_no_clocks_and_know_no_end() -> None:
    assert StreamSettings() == StreamSettings(
        after_content="raise", hold_at_most=MOST_HELD, first_timeout=None, gap_timeout=None, total_timeout=None,
        read=None, needs_end=False, resume=None,
    )  # fmt: skip
    assert MODES == ("raise", "restart", "buffer", "resume")
    assert MOST_HELD == 10_000


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_is_one(mode: AfterContent) -> None:
    assert StreamSettings(after_content=mode).after_content == mode


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"after_content": "ignore"}, "'raise' or 'restart' or 'buffer' or 'resume', not 'ignore'"),
        ({"after_content": None}, "not None"),
        ({"hold_at_most": 0}, "^hold_at_most "),
        ({"hold_at_most": 1.5}, "^hold_at_most "),
        ({"hold_at_most": None}, "^hold_at_most "),
        ({"first_timeout": 0}, "^first_timeout "),
        ({"gap_timeout": -1}, "^gap_timeout "),
        ({"total_timeout": "3"}, "^total_timeout "),
    ],
)
def test_a_senseless_setting_is_refused_by_its_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamSettings(**settings)


def test_settings_and_markers_are_values() -> None:
    settings = StreamSettings(first_timeout=3, gap_timeout=2, total_timeout=60)
    assert (settings.first_timeout, settings.gap_timeout, settings.total_timeout) == (3.0, 2.0, 60.0)
    assert replace(settings, gap_timeout=None).gap_timeout is None
    marker = Restarted(2, 7)
    assert (marker.attempt, marker.discarded) == (2, 7)
    assert pickle.loads(pickle.dumps(marker)) == marker != Restarted(3, 7)
    with pytest.raises(FrozenInstanceError):
        marker.attempt = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        settings.needs_end = True  # type: ignore[misc]


def test_a_chunk_is_content_unless_more_is_known() -> None:
    assert Signal() == (True, (), (), None, None, False, None)


def test_a_delivery_holds_nothing_beyond_its_record() -> None:
    with pytest.raises(AttributeError):
        delivery().anything = 1  # type: ignore[attr-defined]


# ---- the commit point --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["raise", "restart", "resume"])
def test_signs_of_life_wait_for_the_first_content_and_then_all_flows(mode: AfterContent) -> None:
    body = delivery(mode)
    assert body.received(*START, 1, 0.0) == []
    assert body.received(*PING, 1, 0.0) == []
    assert (body.shown, body.released, body.flowing) == (0, False, False)
    assert body.received(*A, 1, 0.0) == ["start", "ping", "a"]
    assert (body.shown, body.contents, body.released, body.flowing) == (3, 1, True, True)
    assert body.received(*PING, 1, 0.0) == ["ping"]
    assert body.received(*B, 1, 0.0) == ["b"]
    assert body.finished(1) == []
    assert (body.shown, body.contents, body.delivered) == (5, 2, ["a", "b"])


@pytest.mark.parametrize("mode", MODES)
def test_what_an_attempt_has_held_back_is_forgotten_with_it(mode: AfterContent) -> None:
    body = delivery(mode)
    assert take(body, START, PING) == []
    assert body.repeatable
    body.begin(0.0)
    assert take(body, ("start 2", BEGIN), A, attempt=2, ended=True) == ["start 2", "a"]
    assert (body.shown, body.contents, body.delivered) == (2, 1, ["a"])


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_without_content_is_handed_over_at_its_end(mode: AfterContent) -> None:
    body = delivery(mode)
    assert take(body, START, STOP, ended=True) == ["start", "stop"]
    assert (body.shown, body.contents, body.delivered, body.flowing) == (2, 0, [], False)
    assert take(delivery(mode), ended=True) == []


def test_a_buffered_stream_is_handed_over_at_its_end_in_order() -> None:
    body = delivery("buffer")
    assert take(body, START, A, PING, B) == []
    assert (body.shown, body.released, body.flowing, body.repeatable) == (0, False, True, True)
    assert body.finished(1) == ["start", "a", "ping", "b"]
    assert (body.shown, body.contents, body.delivered) == (4, 2, ["a", "b"])


def test_what_a_broken_attempt_had_buffered_never_comes() -> None:
    body = delivery("buffer")
    assert take(body, A, B) == []
    body.begin(0.0)
    assert not body.flowing
    assert take(body, C, attempt=2, ended=True) == ["c"]
    assert body.delivered == ["c"]


@pytest.mark.parametrize("mode", MODES)
def test_no_more_than_the_most_is_held_back(mode: AfterContent) -> None:
    body = delivery(mode, hold_at_most=2)
    assert take(body, ("1", NOTE), ("2", NOTE)) == []
    assert body.received("3", NOTE, 1, 0.0) == ["1", "2", "3"]
    assert (body.shown, body.contents, body.released) == (3, 0, True)
    assert body.received("4", NOTE, 1, 0.0) == ["4"]
    assert body.received(*A, 1, 0.0) == ["a"]


def test_a_buffer_that_is_full_lets_the_contents_go_and_the_stream_can_not_be_repeated_any_more() -> None:
    body = delivery("buffer", hold_at_most=2)
    assert take(body, A, B) == []
    assert body.repeatable
    assert take(body, C) == ["a", "b", "c"]
    assert not body.repeatable
    assert take(body, ("d", CONTENT), ended=True) == ["d"]


@pytest.mark.parametrize(("mode", "repeatable"), [
    ("raise", False), ("buffer", False), ("restart", True), ("resume", True),
])  # fmt: skip
def test_what_was_shown_is_repeated_only_where_the_consumer_asked_for_it(mode: AfterContent, repeatable: bool) -> None:
    body = delivery(mode, hold_at_most=1)
    assert take(body, PING) == []
    assert body.repeatable
    assert take(body, ("ping 2", NOTE)) == ["ping", "ping 2"]  # signs of life that were shown count too
    assert body.repeatable is repeatable


# ---- again -------------------------------------------------------------------------------------------------------


def test_a_restart_is_announced_right_before_the_first_chunk_of_the_new_answer() -> None:
    body = delivery("restart")
    assert take(body, START, A, B) == ["start", "a", "b"]
    body.begin(1.0)
    assert take(body, START, PING, attempt=2) == []
    assert (body.shown, body.contents, body.delivered) == (3, 2, ["a", "b"])  # still what the consumer holds
    assert take(body, C, attempt=2) == [Restarted(2, 2), "start", "ping", "c"]
    assert (body.shown, body.contents, body.delivered) == (3, 1, ["c"])
    assert take(body, A, attempt=2, ended=True) == ["a"]


def test_an_attempt_that_shows_nothing_is_not_announced() -> None:
    body = delivery("restart")
    assert take(body, A, B) == ["a", "b"]
    for number in (2, 3):
        body.begin(0.0)
        assert take(body, START, attempt=number) == []
    body.begin(0.0)
    assert take(body, C, attempt=4) == [Restarted(4, 2), "c"]
    body.begin(0.0)
    assert take(body, A, attempt=5) == [Restarted(5, 1), "a"]  # counts from the last marker on


def test_a_new_answer_without_content_voids_the_old_one_all_the_same() -> None:
    body = delivery("restart")
    assert take(body, A) == ["a"]
    body.begin(0.0)
    assert take(body, attempt=2, ended=True) == [Restarted(2, 1)]
    assert (body.shown, body.contents, body.delivered) == (0, 0, [])


def test_nothing_is_announced_where_nothing_was_shown() -> None:
    body = delivery("restart")
    take(body, START)
    body.begin(0.0)
    assert take(body, START, A, attempt=2) == ["start", "a"]


def test_signs_of_life_that_were_shown_are_voided_too_and_a_stream_that_goes_on_shows_them_once() -> None:
    for mode, again in (("restart", [Restarted(2, 0), "ping", "a"]), ("resume", ["a"])):
        body = delivery(mode, hold_at_most=1)  # type: ignore[arg-type]
        assert take(body, START, PING) == ["start", "ping"]
        body.begin(0.0)
        assert take(body, PING, A, attempt=2) == again


def test_a_stream_that_goes_on_does_not_begin_again() -> None:
    body = delivery("resume")
    assert not body.resuming
    assert take(body, START, A) == ["start", "a"]
    assert not body.resuming
    body.begin(0.0)
    assert body.resuming
    assert take(body, ("start 2", BEGIN), PING, B, PING, C, attempt=2, ended=True) == ["b", "ping", "c"]
    assert (body.shown, body.contents, body.delivered) == (5, 3, ["a", "b", "c"])


def test_an_attempt_that_goes_on_and_brings_nothing_leaves_what_there_was() -> None:
    body = delivery("resume")
    assert take(body, A) == ["a"]
    body.begin(0.0)
    assert take(body, START, PING, attempt=2, ended=True) == []
    assert (body.shown, body.contents, body.delivered) == (1, 1, ["a"])


def test_an_attempt_that_goes_on_and_brings_no_more_content_still_brings_the_end() -> None:
    usage = ("usage", Signal(content=False, late=True))
    body = delivery("resume", needs_end=True)
    assert take(body, A) == ["a"]
    body.begin(0.0)
    assert take(body, START, PING, usage, STOP, PING, attempt=2, ended=True) == ["usage", STOP[0], PING[0]]


def test_what_is_complete_is_known_only_where_the_end_is() -> None:
    known, unknown = delivery(needs_end=True), delivery()
    for body in (known, unknown):
        take(body, START, A)
        assert not body.complete
        take(body, STOP)
    assert known.complete
    assert not unknown.complete


@pytest.mark.parametrize("mode", ["raise", "restart", "buffer"])
def test_only_the_mode_that_goes_on_goes_on(mode: AfterContent) -> None:
    body = delivery(mode, hold_at_most=1)
    take(body, A, B)
    body.begin(0.0)
    assert not body.resuming


# ---- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("chunks", "whole"),
    [
        ([], False),
        ([START], False),
        ([A], False),
        ([START, A], False),
        ([START, A, STOP], True),
        ([A, STOP], True),
        ([STOP], True),
        ([START, A, STOP, PING], True),
        ([("1", Signal(begins=(0,))), ("2", Signal(begins=(1,))), ("3", Signal(ends=(0,)))], False),
        ([("1", Signal(begins=(0,))), ("2", Signal(begins=(1,))), ("3", Signal(ends=(0, 1)))], True),
        ([("1", Signal(begins=(0, 1))), ("2", Signal(ends=(1,))), ("3", Signal(ends=(0,)))], True),
        ([("1", Signal(begins=(0,), ends=(0,)))], True),
    ],
)
def test_where_the_end_is_known_a_stream_without_it_has_failed(
    mode: AfterContent, chunks: list[tuple[Any, Signal]], whole: bool
) -> None:
    body = delivery(mode, needs_end=True)
    shown = take(body, *chunks)
    left = body.finished(1)
    assert (left is not None) is whole
    if left is not None:
        assert shown + left == [chunk for chunk, _ in chunks]
    careless = delivery(mode)
    assert take(careless, *chunks, ended=True) == [chunk for chunk, _ in chunks]


def test_an_end_counts_for_its_own_attempt_only() -> None:
    body = delivery("restart", needs_end=True)
    take(body, START, A, STOP)
    body.begin(0.0)
    take(body, B, attempt=2)
    assert body.finished(2) is None
    body.begin(0.0)
    take(body, ("open", Signal(begins=("other",))), attempt=3)
    body.begin(0.0)
    assert take(body, C, STOP, attempt=4, ended=True) == [Restarted(4, 1), "c", "stop"]


# ---- what is remembered ------------------------------------------------------------------------------------------


def test_only_contents_are_remembered_by_the_text_that_they_are_to_be_remembered_by() -> None:
    body, chunk = delivery(), {"delta": "Hel"}
    take(body, START, (chunk, Signal(text="Hel")), PING, ({"delta": ""}, Signal(text="")), (b"lo", CONTENT))
    assert body.delivered == ["Hel", "", b"lo"]
    assert take(delivery(), (chunk, Signal(text="Hel")))[0] is chunk  # the consumer gets the chunk itself


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_KEPT", 290)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("chunk", "kept"), [("x" * 100, 2), (b"x" * 125, 2), ("x" * 271, 0), ({"any": "object"}, 0), ("", 5)]
)
def test_what_is_remembered_for_an_error_is_bounded(chunk: object, kept: int) -> None:
    body = delivery()
    take(body, *[(chunk, CONTENT)] * 5)
    assert (body.contents, len(body.delivered)) == (5, kept)


@pytest.mark.usefixtures("little")
def test_what_is_remembered_is_the_beginning_without_a_gap() -> None:
    body = delivery()
    take(body, ("x" * 200, CONTENT), ("y" * 51, CONTENT), ("z", CONTENT))  # one that would fit comes too late
    assert body.delivered == ["x" * 200]


@pytest.mark.usefixtures("little")
def test_a_restart_makes_room_again() -> None:
    body = delivery("restart")
    take(body, ("x" * 250, CONTENT), B)
    assert body.delivered == ["x" * 250]
    body.begin(0.0)
    take(body, ("y" * 250, CONTENT), B, attempt=2)
    assert body.delivered == ["y" * 250]  # what came before counts no more


@pytest.mark.usefixtures("little")
def test_to_go_on_everything_is_remembered() -> None:
    body = delivery("resume")
    take(body, *[("x" * 100, CONTENT)] * 9)
    assert len(body.delivered) == 9


# ---- clocks ------------------------------------------------------------------------------------------------------


def begun(now: float = 100.0, **settings: Any) -> Delivery:
    body = delivery(**settings)
    body.begin(now)
    return body


def test_before_the_first_wait_nothing_is_due() -> None:
    body = begun(first_timeout=1)
    assert body.due_at == math.inf
    body.limit(100.0, FAR)
    body.begin(105.0)
    assert body.due_at == math.inf


def test_without_clocks_only_the_deadline_ends_a_wait() -> None:
    body = begun()
    assert body.limit(100.0, math.inf) == math.inf
    assert body.due_at == math.inf
    assert (body.limit(103.0, 7.0), body.cut_by, body.due_at) == (7.0, "deadline", 110.0)


def test_to_the_first_content_signs_of_life_do_not_count() -> None:
    body = begun(first_timeout=10, gap_timeout=1)
    assert (body.limit(100.0, FAR), body.cut_by, body.due_at) == (10.0, "first", 110.0)
    body.received(*PING, 1, 104.0)
    assert (body.limit(104.0, FAR), body.cut_by, body.due_at) == (6.0, "first", 110.0)
    body.received(*PING, 1, 112.0)
    assert body.limit(112.0, FAR) == 0.0
    assert body.due_at == 112.0


def test_after_the_first_content_the_time_without_content_counts() -> None:
    body = begun(first_timeout=1, gap_timeout=5)
    body.limit(100.0, FAR)
    body.received(*A, 1, 101.0)
    assert (body.limit(101.0, FAR), body.cut_by, body.due_at) == (5.0, "gap", 106.0)
    body.received(*PING, 1, 104.0)
    assert (body.limit(104.0, FAR), body.due_at) == (2.0, 106.0)  # a sign of life is no content
    body.received(*B, 1, 105.0)
    assert (body.limit(105.0, FAR), body.due_at) == (5.0, 110.0)


def test_what_the_consumer_takes_for_itself_is_no_silence_of_the_service() -> None:
    body = begun(gap_timeout=5)
    body.limit(100.0, FAR)
    body.received(*A, 1, 101.0)
    assert body.limit(161.0, FAR) == 5.0  # it came back for more only now
    body.received(*PING, 1, 163.0)
    assert body.limit(263.0, FAR) == 3.0  # two of the five are used up


def test_a_clock_that_runs_backwards_gives_no_time_back() -> None:
    body = begun(gap_timeout=5)
    body.received(*A, 1, 100.0)
    body.limit(100.0, FAR)
    body.received(*PING, 1, 98.0)
    assert body.limit(98.0, FAR) == 5.0


def test_a_new_attempt_begins_with_clocks_of_its_own() -> None:
    body = begun(first_timeout=10, gap_timeout=5, total_timeout=20)
    body.limit(100.0, FAR)
    body.received(*A, 1, 101.0)
    body.limit(101.0, FAR)
    body.received(*PING, 1, 104.0)
    body.begin(200.0)
    assert (body.limit(200.0, FAR), body.cut_by) == (10.0, "first")
    body.received(*A, 2, 201.0)
    assert (body.limit(201.0, FAR), body.cut_by) == (5.0, "gap")


def test_the_whole_attempt_has_a_clock_that_content_does_not_stop() -> None:
    body = begun(total_timeout=8, first_timeout=20, gap_timeout=5)
    assert (body.limit(100.0, FAR), body.cut_by) == (8.0, "total")
    body.received(*A, 1, 102.0)
    assert (body.limit(102.0, FAR), body.cut_by) == (5.0, "gap")
    body.received(*B, 1, 106.0)
    assert (body.limit(106.0, FAR), body.cut_by, body.due_at) == (2.0, "total", 108.0)
    assert (body.limit(109.0, FAR), body.due_at) == (0.0, 109.0)


def test_the_shortest_of_the_clocks_ends_a_wait_and_of_equal_ones_that_of_the_attempt() -> None:
    for left, limit, by in ((9.0, 9.0, "deadline"), (10.0, 10.0, "first"), (11.0, 10.0, "first"), (0.0, 0, "deadline")):
        body = begun(first_timeout=10)
        assert (body.limit(100.0, left), body.cut_by) == (limit, by)
    body = begun(first_timeout=10, total_timeout=10)
    assert (body.limit(100.0, 10.0), body.cut_by) == (10.0, "first")
    assert (body.limit(101.0, 1.0), body.cut_by) == (1.0, "deadline")  # each wait is asked anew


def silent(body: Delivery, left: float = FAR) -> str:
    body.limit(100.0, left)
    return body.late(3)


def with_content(**settings: Any) -> Delivery:
    body = begun(**settings)
    body.received(*A, 3, 100.0)
    return body


@pytest.mark.parametrize(
    ("body", "left", "text"),
    [
        (lambda: begun(first_timeout=2.5), FAR, "attempt 3 brought no content within first_timeout=2.5 s"),
        (
            lambda: with_content(gap_timeout=2),
            FAR,
            "attempt 3 brought no content for gap_timeout=2 s; 1 content had come",
        ),
        (
            lambda: with_content(total_timeout=2),
            FAR,
            "attempt 3 took longer than total_timeout=2 s; 1 content had come",
        ),
        (lambda: begun(total_timeout=2), FAR, "attempt 3 took longer than total_timeout=2 s; no content had come"),
        (lambda: with_content(gap_timeout=2), 1.0, "attempt 3 was cut at the deadline; 1 content had come"),
    ],
)
def test_the_clock_that_ended_an_attempt_is_named(body: Callable[[], Delivery], left: float, text: str) -> None:
    assert silent(body(), left) == text


def test_a_part_that_has_ended_stays_so() -> None:
    body = begun(needs_end=True)
    body.received("a", Signal(begins=[0]), 1, 100.0)
    body.received("end", Signal(content=False, begins=[0], ends=[0]), 1, 100.0)
    body.received("usage", Signal(content=False, begins=[0]), 1, 100.0)  # of the part that is over
    assert body.finished(1) == []


def test_before_the_first_content_the_consumers_own_time_does_not_count_either() -> None:
    body = begun(first_timeout=10, hold_at_most=1)
    body.limit(100.0, FAR)
    body.received(*PING, 1, 101.0)
    body.received(*PING, 1, 102.0)  # more than may be held: handed over
    assert (body.limit(150.0, FAR), body.cut_by) == (8.0, "first")


def test_a_copy_of_an_attempt_knows_what_was_delivered_and_changes_nothing_of_it() -> None:
    body = delivery("resume")
    take(body, A, B)
    copy = body.fork()
    copy.begin(0.0)
    assert copy.resuming
    assert (copy.shown, copy.contents, copy.delivered) == (2, 2, ["a", "b"])
    take(copy, C, attempt=2)
    assert copy.delivered == ["a", "b", "c"]
    assert (body.shown, body.contents, body.delivered) == (2, 2, ["a", "b"])


# ---- how long the first content took -------------------------------------------------------------------------------


def test_the_time_to_the_first_content_is_kept_and_is_that_of_this_attempt() -> None:
    body = delivery()
    body.begin(100.0)
    assert body.first_after is None
    body.limit(100.0, FAR)
    take(body, START, PING, now=101.0)
    assert body.first_after is None, "a sign of life is no content"
    body.limit(101.0, FAR)
    take(body, A, now=102.5)
    assert body.first_after == 2.5
    body.limit(103.0, FAR)
    take(body, B, STOP, now=160.0)
    assert body.first_after == 2.5, "how long the rest takes is another matter"
    body.begin(200.0)
    assert body.first_after is None


def test_a_copy_of_an_attempt_has_a_first_content_of_its_own() -> None:
    body = delivery()
    body.begin(0.0)
    copy = body.fork()
    copy.begin(1.0)
    take(copy, A, now=1.5)
    assert (body.first_after, copy.first_after) == (None, 0.5)


def test_a_first_content_that_comes_at_once_took_no_time() -> None:
    body = delivery()
    body.begin(7.0)
    take(body, A, now=7.0)
    assert body.first_after == 0.0
    take(body, B, now=9.0)
    assert body.first_after == 0.0

"""A line serves whoever came first, wakes each once, and is never left without somebody who keeps the timer."""

from __future__ import annotations

import math
import threading
import time
from random import Random
from typing import Any

import pytest

from forbear._runtime.line import GRAIN, MADE_UP_FOR, Line, Ticket
from forbear._runtime.threads import ThreadTicket
from forbear._runtime.world import REAL
from forbear.core.meters import Bucket, Window


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Meter:
    """A room of one meter; a place is the instant from which it counts."""

    def __init__(self, meter: Bucket | Window) -> None:
        self.meter = meter
        self.taken: list[tuple[float, float]] = []

    def wait(self, cost: float, now: float) -> float:
        return self.meter.wait(cost, now)

    def predicted(self, total: float, last: float, now: float) -> float:
        return self.meter.predicted(total, last, now)

    def take(self, cost: float, now: float) -> float:
        self.meter.take(cost, now)
        self.taken.append((now, cost))
        return now


class Places:
    """A room with so many places, that must be given back."""

    def __init__(self, free: int) -> None:
        self.free = free

    def wait(self, cost: float, now: float) -> float:
        return 0.0 if self.free > 0 else math.inf

    def predicted(self, total: float, last: float, now: float) -> float:
        return 0.0

    def take(self, cost: float, now: float) -> float:
        self.free -= 1
        return now

    def leave(self, now: float) -> None:
        self.free += 1


class Waiter(Ticket[float, float]):
    """Stands in line, and notes what it is told."""

    def __init__(self, cost: float = 1.0, deadline_at: float = math.inf) -> None:
        super().__init__(cost, deadline_at)
        self.woken = 0
        self.led: list[float] = []
        self.lives = True
        self.runs = True

    def alive(self) -> bool:
        return self.lives

    def can_lead(self) -> bool:
        return self.lives and self.runs

    def wake(self) -> None:
        self.woken += 1

    def lead(self, line: Line[Any, Any]) -> None:
        self.led.append(line.due_at(self))


def bucket(rate: float = 1.0, capacity: float = 1.0) -> tuple[Line[float, float], Clock, Meter]:
    clock = Clock()
    room = Meter(Bucket(rate, capacity, 0.0))
    return Line(room, clock), clock, room


def standing(line: Line[float, float], number: int, **facts: Any) -> list[Waiter]:
    tickets = [Waiter(**facts) for _ in range(number)]
    for ticket in tickets:
        assert line.join(ticket) is None
    return tickets


# ---- who goes next -----------------------------------------------------------------------------------------------


def test_whoever_comes_to_an_empty_line_goes_at_once_where_there_is_a_place() -> None:
    line, _, room = bucket()
    first, second = standing(line, 2)
    assert (first.place, second.place) == (0.0, None)
    assert (first.woken, second.woken) == (0, 0)
    assert room.taken == [(0.0, 1.0)]
    assert len(line) == 1


def test_those_behind_go_one_after_the_other_and_are_woken_once() -> None:
    line, clock, _ = bucket()
    tickets = standing(line, 5)
    for second in range(1, 5):
        clock.now = float(second)
        line.pump()
        assert [ticket.place is not None for ticket in tickets] == [n <= second for n in range(5)]
    assert [ticket.woken for ticket in tickets] == [0, 1, 1, 1, 1]
    assert len(line) == 0


def test_a_small_one_does_not_pass_a_large_one() -> None:
    line, clock, _ = bucket(rate=1.0, capacity=10.0)
    standing(line, 1, cost=10.0)
    large, small = Waiter(8.0), Waiter(1.0)
    line.join(large)
    clock.now = 3.0
    line.join(small)
    line.pump()
    assert small.place is None
    clock.now = 8.0
    line.pump()
    assert (large.place, small.place) == (8.0, None)
    clock.now = 9.0
    line.pump()
    assert small.place == 9.0


def test_a_newcomer_does_not_take_the_place_that_the_head_waits_for() -> None:
    line, clock, _ = bucket()
    _, waiting = standing(line, 2)
    clock.now = 1.5  # its timer is late
    newcomer = Waiter()
    line.join(newcomer)
    line.pump()
    assert waiting.place is not None
    assert newcomer.place is None


def test_whoever_could_not_be_served_in_time_does_not_stand_in_line() -> None:
    line, clock, _ = bucket()
    standing(line, 3)
    assert line.join(Waiter(deadline_at=2.9)) == pytest.approx(3.0)
    assert len(line) == 2
    in_time = Waiter(deadline_at=3.1)
    assert line.join(in_time) is None
    for second in (1.0, 2.0, 3.0):
        clock.now = second
        line.pump()
    assert in_time.place is not None


def test_a_place_that_is_given_back_goes_to_the_head() -> None:
    room = Places(1)
    line: Line[float, float] = Line(room, Clock())
    _, second, third = standing(line, 3)
    line.act(room.leave)
    assert (second.woken, third.woken) == (1, 0)
    assert room.free == 0


# ---- booking ahead -----------------------------------------------------------------------------------------------


def test_what_is_booked_stands_behind_those_who_wait() -> None:
    line, clock, _ = bucket()
    _, waiting = standing(line, 2)
    assert line.book(Ticket(1.0)) == pytest.approx(2.0)
    last = Waiter()
    line.join(last)
    clock.now = 1.0
    line.pump()
    assert (waiting.place, last.place) == (1.0, None)
    clock.now = 2.9
    line.pump()
    assert last.place is None
    clock.now = 3.0
    line.pump()
    assert last.place == pytest.approx(3.0)


def test_what_was_booked_is_forgotten_when_its_time_is_over_whoever_looks() -> None:
    line, clock, _ = bucket()
    standing(line, 2)
    assert [line.book(Ticket(1.0)) for _ in range(3)] == pytest.approx([2.0, 3.0, 4.0])
    clock.now = 1.0
    line.pump()
    assert len(line) == 0
    clock.now = 100.0
    assert line.book(Ticket(1.0)) == 0.0
    assert line.join(late := Waiter(deadline_at=101.5)) is None
    clock.now = 101.0
    line.pump()
    assert late.place is not None


def test_what_could_not_be_had_in_time_is_not_booked() -> None:
    line, _, room = bucket()
    standing(line, 1)
    ticket: Ticket[float, float] = Ticket(1.0, deadline_at=0.5)
    assert line.book(ticket) == 1.0
    assert ticket.too_late
    assert len(room.taken) == 1
    assert line.book(Ticket(1.0)) == 1.0


# ---- who leaves --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaving", range(4))
def test_those_behind_move_up_whoever_leaves(leaving: int) -> None:
    line, clock, _ = bucket()
    tickets = standing(line, 5)[1:]
    assert not line.leave(tickets.pop(leaving))
    for second in (1.0, 2.0, 3.0):
        clock.now = second
        line.pump()
    assert [ticket.place for ticket in tickets] == [1.0, 2.0, 3.0]


def test_one_that_has_its_place_by_now_is_told_to_give_it_back() -> None:
    line, clock, _ = bucket()
    _, waiting = standing(line, 2)
    clock.now = 1.0
    line.pump()
    assert line.leave(waiting)


def test_leaving_twice_takes_nothing_from_the_others() -> None:
    line, _, _ = bucket()
    _, first, second = standing(line, 3)
    line.leave(first)
    line.leave(first)
    assert len(line) == 1
    assert line.join(Waiter(deadline_at=1.9)) == pytest.approx(2.0)
    assert line.leave(second) is False
    assert line.join(Waiter(deadline_at=1.1)) is None


def test_those_who_are_sent_away_are_told_why_and_the_others_move_up() -> None:
    line, clock, _ = bucket()
    tickets = standing(line, 5)[1:]
    line.refuse(lambda ticket: ticket in tickets[:2], lambda: RuntimeError("shut"))
    line.refuse(lambda ticket: ticket is tickets[2])
    assert [type(ticket.refusal and ticket.refusal()) for ticket in tickets[:2]] == [RuntimeError, RuntimeError]
    assert tickets[2].too_late
    assert [ticket.woken for ticket in tickets] == [1, 1, 1, 0]
    clock.now = 1.0
    line.pump()
    assert tickets[3].place == 1.0


# ---- who keeps the timer -----------------------------------------------------------------------------------------


def test_only_the_head_keeps_a_timer() -> None:
    line, clock, _ = bucket()
    tickets = standing(line, 100)[1:]
    assert [len(ticket.led) for ticket in tickets] == [1] + [0] * 98
    assert line.due_at(tickets[0]) == 1.0
    assert line.due_at(tickets[1]) == math.inf
    clock.now = 1.0
    line.pump()
    assert tickets[1].led == [2.0]


def test_the_next_one_keeps_it_when_its_keeper_leaves() -> None:
    line, _, _ = bucket()
    _, first, second = standing(line, 3)
    line.leave(first)
    assert second.led == [1.0]


def test_what_two_threads_tell_the_leader_in_the_other_order_is_never_old() -> None:
    class Changing:
        delay = 5.0

        def wait(self, cost: float, now: float) -> float:
            return self.delay

        def predicted(self, total: float, last: float, now: float) -> float:
            return 0.0

        def take(self, cost: float, now: float) -> float:
            return now

    class Slow(Waiter):
        def lead(self, line: Line[Any, Any]) -> None:
            if threading.current_thread() is slow_pump:
                told.set()
                go_on.wait(30)
            super().lead(line)

    room, told, go_on = Changing(), threading.Event(), threading.Event()
    line: Line[float, float] = Line(room, Clock())
    slow_pump = threading.Thread(target=line.pump)
    ticket = Slow()
    line.join(ticket)
    slow_pump.start()
    told.wait(30)
    room.delay = 0.1
    line.pump()
    go_on.set()
    slow_pump.join()
    assert ticket.led == [5.0, 0.1, 0.1]


def test_one_whose_loop_was_closed_holds_no_place_and_hides_nobody() -> None:
    line, clock, _ = bucket()
    for ticket in standing(line, 6)[1:]:
        ticket.lives = False
    next_one = Waiter(deadline_at=1.5)
    assert line.join(next_one) is None
    assert len(line) == 1
    assert next_one.led == [1.0]
    clock.now = 1.0
    line.pump()
    assert next_one.place == 1.0


def test_what_is_booked_behind_closed_loops_is_not_held_up_by_them() -> None:
    line, _, _ = bucket()
    for ticket in standing(line, 6)[1:]:
        ticket.lives = False
    assert line.book(Ticket(1.0)) == 1.0


def test_one_whose_loop_stands_still_keeps_its_place_but_not_the_timer() -> None:
    line, clock, _ = bucket()
    paused = standing(line, 2)[1]
    paused.runs = False
    behind = Waiter()
    line.join(behind)
    assert behind.led == [1.0]
    clock.now = 1.0
    line.pump()
    assert (paused.place, behind.place) == (1.0, None)
    clock.now = 2.0
    line.pump()
    assert behind.place == 2.0


def test_where_all_loops_stand_still_the_head_keeps_it_for_when_its_goes_on() -> None:
    line, _, _ = bucket()
    paused = Waiter()
    paused.runs = False
    standing(line, 1)
    line.join(paused)
    assert paused.led == [1.0]


def test_a_wait_shorter_than_any_timer_can_keep_is_none() -> None:
    class Almost(Places):
        def wait(self, cost: float, now: float) -> float:
            return 2e-13

    line: Line[float, float] = Line(Almost(1), Clock())
    ticket = Waiter()
    line.join(ticket)
    assert ticket.place is not None


# ---- late timers -------------------------------------------------------------------------------------------------


def test_a_timer_that_is_a_little_late_costs_nobody_anything() -> None:
    line, clock, _ = bucket(rate=10.0)
    tickets = standing(line, 11)
    for tick in range(1, 11):
        clock.now = tick / 10 + 0.04
        line.pump()
    assert all(ticket.place is not None for ticket in tickets)


def test_one_that_is_very_late_makes_no_burst() -> None:
    line, clock, _ = bucket(rate=100.0)
    tickets = standing(line, 200)
    clock.now = 1.0
    line.pump()
    assert sum(ticket.place is not None for ticket in tickets) <= 2 + MADE_UP_FOR * 100


def test_a_strict_window_counts_from_when_one_really_goes() -> None:
    clock = Clock()
    line: Line[float, float] = Line(Meter(Window(1.0, 1.0)), clock, made_up_for=0.0)
    _, second, third = standing(line, 3)
    clock.now = 1.04  # its timer is late
    line.pump()
    assert (second.woken, third.woken) == (1, 0)
    clock.now = 2.03
    line.pump()
    assert third.place is None
    clock.now = 2.04
    line.pump()
    assert third.place is not None


def test_wake_ups_of_a_fast_line_are_no_denser_than_its_grain() -> None:
    line: Line[float, float] = Line(Meter(Bucket(10_000.0, 1.0, REAL.clock())), REAL.clock)
    tickets = [ThreadTicket[float, float](1.0) for _ in range(2_000)]
    for ticket in tickets:
        line.join(ticket)
    pumps = 0
    while len(line):
        leader = next(iter(line._waiting))
        time.sleep(max(0.0, line.due_at(leader) - time.monotonic()))
        line.pump()
        pumps += 1
    assert pumps <= 0.2 / GRAIN * 1.5


# ---- all of it at once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_goes_in_turn_and_none_is_forgotten(seed: int) -> None:
    """Joins, bookings, departures, refusals and time, at random: the order holds, and the line empties in the end."""
    dice = Random(seed)
    line, clock, _ = bucket(rate=1.0, capacity=5.0)
    waiting: list[Waiter] = []
    served: list[Waiter] = []
    joined: list[Waiter] = []
    for _ in range(400):
        match dice.randrange(6):
            case 0 | 1:
                ticket = Waiter(dice.choice([0.5, 1.0, 4.0, 9.0]))
                line.join(ticket)
                joined.append(ticket)
                (served if ticket.place is not None else waiting).append(ticket)
            case 2:
                line.book(Ticket(1.0))
            case 3 if waiting:
                line.leave(waiting.pop(dice.randrange(len(waiting))))
            case 4 if waiting:
                gone = waiting.pop(dice.randrange(len(waiting)))
                line.refuse(lambda ticket, gone=gone: ticket is gone)
            case _:
                led = [line.due_at(ticket) for ticket in waiting]
                due = min(led, default=math.inf)
                assert not waiting or due < math.inf, "nobody would wake the line"
                clock.now = min(due, clock.now + dice.random() * 3)
                line.pump()
        now_served = [ticket for ticket in waiting if ticket.place is not None]
        served += now_served
        waiting = [ticket for ticket in waiting if ticket.place is None]
    while waiting:
        clock.now = min(line.due_at(ticket) for ticket in waiting)
        line.pump()
        served += [ticket for ticket in waiting if ticket.place is not None]
        waiting = [ticket for ticket in waiting if ticket.place is None]
    order = [joined.index(ticket) for ticket in served]
    assert order == sorted(order)
    assert len(line) == 0
    assert all(ticket.woken <= 1 for ticket in joined)

"""R086: a generator that is copied into forked workers makes them all wait alike; the user's seed is not ours."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from forbear import RetriesExhausted
from forbear.testing import Flaky

CHILDREN = 8
WAITS = 5
HEAD = """
import json, os, random, sys
from forbear import Policy, RetryError, retry, retry_sync, backoff_delay

def failing():
    raise ConnectionError

async def failing_async():
    raise ConnectionError

POLICY = Policy(max_attempts=6, deadline=None)
call = retry(policy=POLICY)(failing)

def waits():
    drawn = []
    try:
        retry_sync(failing, policy=POLICY, sleep=drawn.append)
    except RetryError:
        pass
    return drawn

waits()  # whatever is made on first use is made before the fork
"""
FORK = (
    HEAD
    + """
pipes = []
for _ in range(8):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, json.dumps(waits()).encode())
        os._exit(0)
    os.close(writing)
    pipes.append(reading)
print(json.dumps([json.loads(os.read(reading, 10_000)) for reading in pipes] + [waits()]))
for _ in pipes:
    os.wait()
"""
)
SEEDED = (
    HEAD
    + """
random.seed(0)
first = [random.random() for _ in range(3)]
drawn = waits() + [backoff_delay(3)]
second = [random.random() for _ in range(3)]
print(json.dumps([first + second, drawn]))
"""
)


def output(program: str) -> Any:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_and_their_parent_wait_differently() -> None:
    drawn = output(FORK)
    assert [len(waits) for waits in drawn] == [WAITS] * (CHILDREN + 1)
    for n in range(WAITS):
        assert len({waits[n] for waits in drawn}) == CHILDREN + 1


def test_processes_that_seed_alike_wait_differently_and_keep_their_sequence() -> None:
    random_sequence = random.Random(0)
    expected = [random_sequence.random() for _ in range(6)]
    (one, waits_one), (two, waits_two) = output(SEEDED), output(SEEDED)
    assert one == two == expected
    assert set(waits_one).isdisjoint(waits_two)


def test_no_form_reads_or_moves_the_users_generator(form: Callable[..., Any]) -> None:
    random.seed(0)
    before = random.getstate()
    drawn = []
    for _ in range(2):
        random.seed(0)
        waits: list[float] = []
        with pytest.raises(RetriesExhausted):
            form(Flaky(then=ConnectionError()), sleep=waits.append)
        assert random.getstate() == before
        drawn.append(waits)
    assert set(drawn[0]).isdisjoint(drawn[1])


def test_a_generator_of_the_users_own_is_used_where_it_is_given(form: Callable[..., Any]) -> None:
    drawn = []
    for _ in range(2):
        waits: list[float] = []
        with pytest.raises(RetriesExhausted):
            form(Flaky(then=ConnectionError()), sleep=waits.append, rng=random.Random(7).random)
        drawn.append(waits)
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 4

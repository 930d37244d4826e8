"""R068: a wait for one key must not hold up another: no lock is held while somebody waits."""

from __future__ import annotations

import threading
import time

from forbear import RateLimiter, Upstream


def test_a_thread_with_room_returns_at_once_while_another_waits_on_its_key() -> None:
    service = Upstream("service", requests_per_minute=12)
    service.for_("A").retry_sync(lambda: None)
    waits = threading.Thread(target=lambda: service.for_("A").retry_sync(lambda: None, deadline=30))
    waits.start()
    while not service.for_("A").snapshot().waiting:
        time.sleep(0.001)
    began = time.monotonic()
    service.for_("B").retry_sync(lambda: None)
    service.for_("C").snapshot()
    took = time.monotonic() - began
    assert took < 2.0
    assert service.for_("A").snapshot().waiting == 1
    line = service.for_("A").entrance.on(time.monotonic)
    line.refuse(lambda _: True, lambda: KeyError("enough"))
    threading.excepthook, hook = lambda _: None, threading.excepthook
    waits.join(10)
    threading.excepthook = hook
    assert service.for_("A").snapshot().waiting == 0


def test_while_one_waits_the_same_limiter_answers_others_at_once() -> None:
    limiter = RateLimiter(60, 100, burst=1)
    limiter.acquire()
    waits = threading.Thread(target=limiter.acquire)
    waits.start()
    while not len(limiter._line()):
        time.sleep(0.001)
    began = time.monotonic()
    assert limiter.reserve() > 0.5
    limiter.consume(1)
    assert time.monotonic() - began < 0.5
    waits.join(10)


def test_forty_keys_that_wait_end_together_and_not_one_after_the_other() -> None:
    service = Upstream("service", requests_per_minute=120)
    for key in range(40):
        service.for_(key).retry_sync(lambda: None)
    began = time.monotonic()
    threads = [threading.Thread(target=service.for_(key).retry_sync, args=(lambda: None,)) for key in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert time.monotonic() - began < 5.0

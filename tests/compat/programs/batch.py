"""A program of a user: a batch over a service that misbehaves, with retries, limits and a breaker."""

# ruff: noqa: T201

import asyncio
import random

from retryhop import (
    CircuitBreaker,
    CircuitOpenError,
    RateLimiter,
    RetryError,
    constant,
    describe,
    linear,
    llm_retry,
    retry,
    retry_call,
)

random.seed(7)


class RateLimitError(Exception):
    def __init__(self, status, headers=()):
        super().__init__(f"status {status}")
        self.status_code = status
        self.headers = dict(headers)


class Service:
    def __init__(self, *answers):
        self.answers = list(answers)

    def ask(self, prompt, temperature=0.0):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return f"{prompt} {temperature}: {answer}"


def log(state):
    print(describe(state))


async def nap(seconds):
    print(f"a nap of {seconds:.3f} s")


service = Service(
    RateLimitError(429, {"Retry-After": "2"}), ConnectionError("reset"), "fine", RateLimitError(400), "never",
)  # fmt: skip
limiter = RateLimiter(requests_per_minute=600, tokens_per_minute=6000)
waits = []


@llm_retry(attempts=4, on_retry=log, sleep=waits.append)
@limiter.limit(tokens=lambda prompt, **_: len(prompt))
def ask(prompt, temperature=0.0):
    return service.ask(prompt, temperature=temperature)


print(ask("hello", temperature=0.5), [round(wait, 3) for wait in waits])
try:
    ask("again")
except RateLimitError as error:
    print("refused:", error)

states = iter(["queued", "running", "completed"])
poll = retry(attempts=5, retry_if_result=lambda state: state != "completed", backoff=constant(30), sleep=waits.append)
print(poll(lambda: next(states))(), waits[-2:])

try:
    retry_call(lambda: None, retry_options={"attempts": 2, "retry_if_result": lambda r: r is None, "sleep": print})
except RetryError as error:
    print(type(error).__name__, error.attempts, error.last_exception, error.last_result, error.__cause__)

breaker = CircuitBreaker(2, 60)


@retry(attempts=5, exceptions=(ConnectionError, TimeoutError), backoff=linear(1, 1), circuit=breaker, sleep=nap)
async def fetch(name):
    raise TimeoutError(name)


async def main():
    for name in ("first", "second"):
        try:
            await fetch(name)
        except CircuitOpenError as error:
            print(name, breaker.state, round(error.retry_in))


asyncio.run(main())

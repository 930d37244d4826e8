"""The API that misbehaves: HTTP/1.1 on plain sockets of 127.0.0.1, in a process of its own.

    python -m forbear.demo.server --seed 7 --quota 20 --apps 2

It prints one line of JSON with its ports and ends when its standard input ends, which happens in whatever way the
process that started it goes. Every contender has an app, a port and a script of its own, so that none can disturb
another. The apps count what they receive: how many requests were sent is known here, not to the clients.

Decided here: how each kind of trouble looks on the wire. Must never know who calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

from forbear.demo.script import Answer, Kind, Script, phase_at

HOST = "127.0.0.1"
DROP_EVERY = 0.8  # seconds; well below any usual read timeout
EARLY = 0.02  # seconds; who comes back so little before the time named was on time: clocks and timers are coarse
# A reset needs "linger, for zero seconds"; Windows has shorter fields.
RESET_ON_CLOSE = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)

Respond = Callable[[str, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class App:
    """One contender's API. `script` says what a request of a call gets, given the seconds since the first request."""

    def __init__(self, script: Callable[[str, float], Answer]) -> None:
        self.script = script
        self.began_at: float | None = None
        self.answers: Counter[Kind] = Counter()
        self.too_early = 0
        self.back_at: dict[str, float] = {}

    def state(self) -> dict[str, Any]:
        """What was received so far, and what is going on."""
        elapsed = 0.0 if self.began_at is None else time.monotonic() - self.began_at
        return {
            "elapsed": elapsed,
            "phase": phase_at(elapsed).says,
            "requests": self.answers.total(),
            "answers": {kind.value: self.answers[kind] for kind in Kind},
            "too_early": self.too_early,
        }

    async def respond(self, call: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Counts a request and answers it, or does not."""
        now = time.monotonic()
        if self.began_at is None:
            self.began_at = now
        self.too_early += now < self.back_at.pop(call, now) - EARLY
        answer = self.script(call, now - self.began_at)
        self.answers[answer.kind] += 1
        match answer.kind:
            case Kind.OK | Kind.SLOW:
                await asyncio.sleep(answer.seconds)
                writer.write(response(HTTPStatus.OK, {"call": call}))
            case Kind.DRIP:
                await drip(writer, answer.seconds, response(HTTPStatus.OK, {"call": call}))
            case Kind.HANG:
                await reader.read()  # nothing more is said until the client leaves
            case Kind.RESET:
                reset(writer)
            case Kind.UNAVAILABLE:
                writer.write(response(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "down"}))
            case Kind.LIMITED_SECONDS | Kind.LIMITED_DATE:
                self.refuse(call, answer, writer)

    def refuse(self, call: str, answer: Answer, writer: asyncio.StreamWriter) -> None:
        """Answers 429, and remembers when the call was asked to come back."""
        now = time.time()
        wait: float = math.ceil(answer.seconds)
        value = str(wait)
        if answer.kind is Kind.LIMITED_DATE:
            date = math.ceil(now + answer.seconds)  # dates have whole seconds; an earlier one would promise too much
            wait, value = date - now, http_date(date)
        self.back_at[call] = time.monotonic() + wait
        writer.write(response(HTTPStatus.TOO_MANY_REQUESTS, {"error": "rate limit"}, {"Retry-After": value}))


def response(status: HTTPStatus, content: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
    """A whole response. It always has a Date: a Retry-After that is a date means nothing without the server's own."""
    body = json.dumps(content).encode()
    fields = {
        "Date": http_date(time.time()),
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    lines = (f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items()))
    return "\r\n".join((*lines, "", "")).encode() + body


def http_date(seconds: float) -> str:
    """An HTTP date, whole seconds, rounded down."""
    return format_datetime(datetime.fromtimestamp(math.floor(seconds), UTC), usegmt=True)


async def drip(writer: asyncio.StreamWriter, seconds: float, whole: bytes) -> None:
    """Sends the headers at once and the body in drops over `seconds`."""
    head, end, body = whole.partition(b"\r\n\r\n")
    drops = max(2, math.ceil(seconds / DROP_EVERY))
    size = math.ceil(len(body) / drops)
    writer.write(head + end)
    for start in range(0, len(body), size):
        await writer.drain()
        await asyncio.sleep(seconds / math.ceil(len(body) / size))
        writer.write(body[start : start + size])


def reset(writer: asyncio.StreamWriter) -> None:
    """Breaks the connection off, without the polite end."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    writer.transport.abort()


@asynccontextmanager
async def serving(respond: Respond) -> AsyncGenerator[int, None]:
    """Serves on a free port of this machine's loopback while the block runs; gives the port."""
    conversations: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(converse(respond, reader, writer))
        conversations.add(task)
        task.add_done_callback(conversations.discard)

    server = await asyncio.start_server(accept, HOST, 0, backlog=512)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)


async def converse(respond: Respond, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers one request after the other until either side has had enough."""
    try:
        while not writer.is_closing():
            request = await reader.readuntil(b"\r\n\r\n")
            await respond(request.split(b" ", 2)[1].decode("ascii", "replace"), reader, writer)
            await writer.drain()
    except (OSError, EOFError, asyncio.LimitOverrunError, IndexError):
        pass  # the client left, or speaks no HTTP
    finally:
        writer.close()


async def serve(seed: int, quota: int, apps: int) -> None:
    """Serves for ever. Prints the ports when all of them listen."""
    running = [App(Script(seed, quota).answer) for _ in range(apps)]

    async def tell(_: str, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(HTTPStatus.OK, {"apps": [app.state() for app in running]}))

    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(serving(app.respond)) for app in running]
        control = await stack.enter_async_context(serving(tell))
        sys.stdout.write(json.dumps({"apps": ports, "control": control}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def leave_with_parent() -> None:
    """Waits for the end of standard input: the process at its other end has gone, or wants this one to go."""
    while os.read(sys.stdin.fileno(), 1024):  # not through the buffer, whose lock a leaving process wants
        pass
    os._exit(0)  # at once, whatever the event loop is doing


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m forbear.demo.server")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--quota", type=int, required=True, help="requests let in per second of the rate limit")
    parser.add_argument(
        "--apps", type=int, required=True, help="how many APIs, each with a port and a script of its own"
    )
    options = parser.parse_args()
    # Where there are no sessions, Ctrl-C reaches every process of the terminal; when to go is the parent's matter.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    asyncio.run(serve(options.seed, options.quota, options.apps))


if __name__ == "__main__":
    main()

"""The scripted server: it carries the steps of a script out on real sockets of 127.0.0.1, and logs every request.

It runs in a thread of its own with an event loop of its own, so blocking tests and async tests use it alike. The script
is one list for the whole server: each request takes the next step, on whatever connection it comes, and the last step
is repeated. It must never leave anything behind: when it stops, every connection is dropped and the thread is joined.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from loopback.steps import (
    BREATH,
    Choose,
    Close,
    Cut,
    GoAway,
    Hang,
    RefuseStream,
    Reply,
    RequestStep,
    Reset,
    Speak,
    Step,
    Stream,
    Taking,
    Talk,
    TurnAway,
)
from loopback.wire import NO_BODY, Line, Request, encode, head_of, pairs_of, pieces_of, read_request

LEFT = (ConnectionError, EOFError, ssl.SSLError)  # what a client does to us: it left, or would not speak TLS with us


class Server:
    """A server that does what its script says. Use it as a context manager, or as the `loopback` fixture.

    With `http2` it speaks HTTP/2: over TLS where the client agrees in the handshake (and else HTTP/1.1), and without
    TLS always. `open_requests` are being answered now; a client that left is noticed by HTTP/2 at once, and by
    HTTP/1.1 when the step has more to send, or waits for that.
    """

    def __init__(self, *steps: Step, tls: ssl.SSLContext | None = None, http2: bool = False, date: str = "") -> None:
        self.tls = tls
        self._converse = http2_over(tls) if http2 else None
        self.date = date
        self.requests: list[Request] = []
        self.connections = 0
        self.open_requests = 0
        self.port = 0
        self.trouble: BaseException | None = None
        self._script: deque[Step] = deque()
        self._lines: set[Line] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loopback server", daemon=True)
        self.script(*(steps or (Reply(),)))

    def script(self, *steps: Step) -> Self:
        """Replaces the steps that are left. The last one is repeated for every further request."""
        if not steps:
            raise ValueError("a script needs at least one step")
        self._script = deque(steps)
        return self

    @property
    def host(self) -> str:
        """Host and port, as in a URL."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Where the server is, without a slash at the end."""
        return f"{'https' if self.tls else 'http'}://{self.host}"

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        return len(self._lines)

    def wait_until_idle(self, timeout: float = 5.0, *, kept: int = 0) -> None:
        """Waits until no request is being answered and no more than `kept` connections are open. Raises `TimeoutError`
        after so many seconds. It blocks: an async test, whose client needs the loop to leave, calls it in a thread.
        """
        ends = time.monotonic() + timeout
        while self.open_requests or self.open_connections > kept:
            if time.monotonic() > ends:
                left = f"{self.open_requests} requests and {self.open_connections} connections"
                raise TimeoutError(f"{left} are still open after {timeout:g} s")
            time.sleep(0.002)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self.trouble is not None:
            raise self.trouble
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        if self.trouble is not None and error is None:
            raise self.trouble

    def stop(self) -> None:
        """Drops every connection and ends. May be called again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except OSError as error:
            self.trouble = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        for line in self._lines:
            line.drop()
        for task in self._tasks:
            task.cancel()
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left)
        listener.close()  # not before: a connection that is being accepted then would be lost, and never closed

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stop.is_set():
            writer.transport.abort()
            return
        self.connections += 1
        line = Line(reader, writer, self.connections)
        self._lines.add(line)
        task = asyncio.create_task(self._connection(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._lines.discard(line))

    async def _connection(self, line: Line) -> None:
        try:
            await self._attend(line)
        except LEFT:
            pass
        except Exception as error:  # a fault of the script: told to the test when the server stops
            self.trouble = error
        await line.close()

    async def _attend(self, line: Line) -> None:
        if isinstance(self._script[0], TurnAway | Talk):
            await perform_at_door(line, self._next())
            return
        if self.tls is not None:
            await line.secure(self.tls)
        if self._converse is not None and (self.tls is None or line.protocol == "h2"):
            await self._converse(line, self._take, self.date)
            return
        while await self._answer(line):
            pass

    async def _answer(self, line: Line) -> bool:
        method, path, headers, body = await read_request(line)
        with self._take(Request(method, path, headers, body, time.monotonic(), line.number)) as step:
            return await perform(line, step, method, self.date)

    @contextmanager
    def _take(self, request: Request) -> Iterator[RequestStep]:
        """Logs a request, and gives the step that answers it within the block."""
        self.requests.append(request)
        step = self._next()
        if isinstance(step, Choose):
            step = step.of(request)
        assert not isinstance(step, TurnAway | Talk), f"{step!r} needs a new connection, and this one was kept open"
        self.open_requests += 1
        try:
            yield step
        finally:
            self.open_requests -= 1

    def _next(self) -> Step:
        return self._script.popleft() if len(self._script) > 1 else self._script[0]


def http2_over(tls: ssl.SSLContext | None) -> Callable[[Line, Taking, str], Awaitable[None]]:
    """What speaks HTTP/2, after the handshakes of TLS were told to offer it. It needs `h2`, and nothing else does."""
    from loopback.http2 import converse  # noqa: PLC0415  # h2 is there only with the SDKs

    if tls is not None:
        tls.set_alpn_protocols(["h2", "http/1.1"])
    return converse


async def perform_at_door(line: Line, step: Step) -> None:
    """Carries out a step that takes the whole connection."""
    if isinstance(step, Talk):
        await step.talk(line)
    elif isinstance(step, TurnAway):
        await line.reader.read(65536)
        if step.how == "reset":
            line.reset()
        elif step.how == "hang":
            await line.until_gone()


async def perform(line: Line, step: RequestStep, method: str, date: str) -> bool:
    """Answers one request. Tells whether the connection can take another."""
    match step:
        case Reply():
            return await reply(line, step, method, date)
        case Stream():
            return await stream(line, step, date)
        case Cut():
            await cut(line, step, date)
        case Speak(data):
            await line.send(data)
        case Reset():
            line.reset()
        case Hang():
            await line.until_gone()
        case RefuseStream() | GoAway():
            raise AssertionError(f"{step!r} is a step for HTTP/2, and this connection speaks HTTP/1.1")
        case Close() | Choose():
            pass
    return False


async def reply(line: Line, step: Reply, method: str, date: str) -> bool:
    body, kind = encode(step.body)
    bare = step.status in NO_BODY or method == "HEAD"
    length = "" if step.status in NO_BODY else str(len(body))
    headers = pairs_of(step.headers)
    head = head_of(step.status, headers, {"content-type": kind, "date": date, "content-length": length})
    await asyncio.sleep(step.after)
    await send_slowly(line, head + (b"" if bare else body), step.drip)
    return ("connection", "close") not in {(name.lower(), value.lower()) for name, value in headers}


async def send_slowly(line: Line, data: bytes, drip: float | None) -> None:
    for piece in pieces_of(data, drip):
        await line.send(piece)
        await asyncio.sleep(drip or 0.0)


async def cut(line: Line, step: Cut, date: str) -> None:
    body, kind = encode(step.body)
    defaults = {"content-type": kind, "date": date, "content-length": str(len(body) + step.missing)}
    await line.send(head_of(step.status, pairs_of(step.headers), defaults) + body)
    if step.reset:
        await asyncio.sleep(BREATH)
        line.reset()


async def stream(line: Line, step: Stream, date: str) -> bool:
    await line.send(head_of(step.status, pairs_of(step.headers), {"date": date, "transfer-encoding": "chunked"}))
    for chunk in step.chunks:
        if isinstance(chunk, bytes):
            await line.send(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        else:
            await asyncio.sleep(chunk)
    if step.ends == "whole":
        await line.send(b"0\r\n\r\n")
    elif step.ends == "reset":
        await asyncio.sleep(BREATH)
        line.reset()
    elif step.ends == "hang":
        await line.until_gone()
    return step.ends == "whole"

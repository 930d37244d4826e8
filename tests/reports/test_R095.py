"""R095: a decorator must give back what it got: name, text, signature, binding, and whether it is to be awaited."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import pytest

from forbear import Policy, retry, retry_sync
from forbear.testing import FakeTime, Flaky

T = TypeVar("T")
DECORATORS: dict[str, Callable[[Any], Any]] = {
    "retry()": retry(),
    "retry(options)": retry(max_attempts=2, deadline=None),
    "retry(policy)": retry(policy=Policy(max_attempts=2)),
    "retry(fallback)": retry(fallback=lambda _: None),
    "retry(retry)": lambda fn: retry()(retry()(fn)),
}
BLOCKING: dict[str, Callable[[Any], Any]] = {
    "retry_sync()": retry_sync(),
    "retry_sync(fallback)": retry_sync(fallback=lambda _: None),
}


def plain(a: int, /, b: str = "b", *args: int, c: float, **kwargs: bool) -> tuple[Any, ...]:
    """The text of plain."""
    return a, b, args, c, kwargs


async def asynchronous(a: int, /, b: str = "b", *args: int, c: float, **kwargs: bool) -> tuple[Any, ...]:
    """The text of asynchronous."""
    return a, b, args, c, kwargs


@pytest.fixture(params=[*DECORATORS, *BLOCKING])
def any_decorator(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return {**DECORATORS, **BLOCKING}[request.param]


@pytest.fixture(params=DECORATORS)
def decorator(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return DECORATORS[request.param]


def same_face(decorated: Any, original: Any) -> None:
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__type_params__"):
        assert getattr(decorated, name, None) == getattr(original, name, None), name
    assert inspect.signature(decorated) == inspect.signature(original)
    assert inspect.unwrap(decorated) is original


def test_a_plain_function_keeps_its_face(any_decorator: Callable[[Any], Any]) -> None:
    decorated = any_decorator(plain)
    same_face(decorated, plain)
    assert not inspect.iscoroutinefunction(decorated)
    assert decorated(1, "x", 2, c=3.0, d=True) == (1, "x", (2,), 3.0, {"d": True})
    with pytest.raises(TypeError, match="missing"):
        decorated(1)


async def test_an_async_function_keeps_its_face(decorator: Callable[[Any], Any]) -> None:
    decorated = decorator(asynchronous)
    same_face(decorated, asynchronous)
    assert inspect.iscoroutinefunction(decorated)
    call = decorated(1, "x", 2, c=3.0, d=True)
    assert inspect.iscoroutine(call)
    assert await call == (1, "x", (2,), 3.0, {"d": True})
    with pytest.raises(TypeError, match="missing"):
        await decorated(1)


def test_a_blocking_decorator_refuses_an_async_function() -> None:
    with pytest.raises(TypeError, match="use retry"):
        retry_sync()(asynchronous)


def test_attributes_of_the_function_are_kept(any_decorator: Callable[[Any], Any]) -> None:
    def fn() -> None:
        """Has attributes."""

    fn.route = "/things"  # type: ignore[attr-defined]
    assert any_decorator(fn).route == "/things"


# ---- methods -------------------------------------------------------------------------------------------------------


class Client:
    """Methods of all kinds, with the decorator in both orders."""

    name = "class"

    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky
        self.name = "instance"

    @retry()
    def method(self, x: int) -> tuple[str, int]:
        """A method."""
        self.flaky()
        return self.name, x

    @retry()
    async def async_method(self, x: int) -> tuple[str, int]:
        """An async method."""
        await self.flaky.asynchronous()
        return self.name, x

    @classmethod
    @retry()
    def class_outside(cls, flaky: Flaky) -> str:
        """classmethod outside."""
        flaky()
        return cls.name

    @retry()
    @classmethod
    def class_inside(cls, flaky: Flaky) -> str:
        """classmethod inside."""
        flaky()
        return cls.name

    @staticmethod
    @retry()
    def static_outside(flaky: Flaky) -> str:
        """staticmethod outside."""
        return str(flaky())

    @retry()
    @staticmethod
    def static_inside(flaky: Flaky) -> str:
        """staticmethod inside."""
        return str(flaky())

    @classmethod
    @retry()
    async def async_class_outside(cls, flaky: Flaky) -> str:
        """async classmethod outside."""
        await flaky.asynchronous()
        return cls.name

    @retry()
    @classmethod
    async def async_class_inside(cls, flaky: Flaky) -> str:
        """async classmethod inside."""
        await flaky.asynchronous()
        return cls.name

    @retry()
    @staticmethod
    async def async_static_inside(flaky: Flaky) -> str:
        """async staticmethod inside."""
        return str(await flaky.asynchronous())

    @property
    @retry()
    def value(self) -> str:
        """A property."""
        return str(self.flaky())


class Derived(Client):
    """Inherits everything."""

    name = "derived"


def failing_twice() -> Flaky:
    return Flaky(ConnectionError(), ConnectionError(), "done")


@pytest.mark.parametrize("kind", [Client, Derived])
def test_methods_bind_as_before_and_are_retried(kind: type[Client]) -> None:
    with FakeTime():
        assert kind(failing_twice()).method(5) == ("instance", 5)
        assert kind.method(kind(failing_twice()), 5) == ("instance", 5)
        assert asyncio.run(kind(failing_twice()).async_method(5)) == ("instance", 5)
        assert kind(failing_twice()).value == "done"


@pytest.mark.parametrize("owner", [Client, Derived, Client(Flaky()), Derived(Flaky())], ids=lambda o: repr(type(o)))
@pytest.mark.parametrize("name", ["class_outside", "class_inside", "static_outside", "static_inside"])
def test_class_and_static_methods_bind_in_both_orders(owner: Any, name: str) -> None:
    kind = owner if isinstance(owner, type) else type(owner)
    with FakeTime():
        assert getattr(owner, name)(failing_twice()) == (kind.name if "class" in name else "done")


@pytest.mark.parametrize("name", ["async_class_outside", "async_class_inside", "async_static_inside"])
async def test_async_class_and_static_methods_do_too(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(Derived, name))
    with FakeTime():
        assert await getattr(Derived, name)(failing_twice()) == ("derived" if "class" in name else "done")


@pytest.mark.parametrize("name", [name for name in vars(Client) if not name.startswith("_") and name != "name"])
def test_methods_keep_their_text_and_their_signature(name: str) -> None:
    found = inspect.getattr_static(Client, name)
    function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    assert function.__name__ == name
    assert function.__qualname__ == f"Client.{name}"
    assert function.__doc__
    assert next(iter(inspect.signature(function).parameters)) in ("self", "cls", "flaky")


def test_two_instances_do_not_mix() -> None:
    first, second = Client(failing_twice()), Client(Flaky(then="done"))
    with FakeTime():
        first.method(1)
        second.method(1)
    assert (first.flaky.calls, second.flaky.calls) == (3, 1)


def test_an_abstract_method_stays_abstract() -> None:
    class Base(abc.ABC):
        @retry()
        @abc.abstractmethod
        def fetch(self) -> None:
            """To be written."""

        @abc.abstractmethod
        @retry()
        async def load(self) -> None:
            """To be written."""

    assert Base.__abstractmethods__ == {"fetch", "load"}
    with pytest.raises(TypeError, match="abstract"):
        Base()  # type: ignore[abstract]


def test_a_property_on_the_wrong_side_is_refused_with_the_correction() -> None:
    with pytest.raises(TypeError, match="under @property"):
        retry()(property(lambda _: 1))  # type: ignore[type-var]


# ---- other callables -----------------------------------------------------------------------------------------------


class Callable_:
    """Called like a function."""

    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky

    def __call__(self, x: int, *, y: int = 2) -> tuple[Any, int, int]:
        return self.flaky(), x, y


class AsyncCallable:
    """Called like an async function."""

    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky

    async def __call__(self, x: int, *, y: int = 2) -> tuple[Any, int, int]:
        return await self.flaky.asynchronous(), x, y


def test_callable_objects_and_partials_are_retried(any_decorator: Callable[[Any], Any]) -> None:
    one = any_decorator(Callable_(Flaky(then="done")))
    assert inspect.signature(one) == inspect.signature(Callable_(Flaky()))
    assert one(1, y=3) == ("done", 1, 3)
    two = any_decorator(functools.partial(plain, 1, c=2.0))
    assert inspect.signature(two) == inspect.signature(functools.partial(plain, 1, c=2.0))
    assert two("x") == (1, "x", (), 2.0, {})
    three = any_decorator(functools.partial(Callable_(Flaky(then="done")), 1))
    assert three(y=5) == ("done", 1, 5)


async def test_async_objects_and_partials_are_known_as_such(decorator: Callable[[Any], Any]) -> None:
    one = decorator(AsyncCallable(Flaky(then="done")))
    assert inspect.iscoroutinefunction(one)
    assert await one(1, y=3) == ("done", 1, 3)
    two = decorator(functools.partial(asynchronous, 1, c=2.0))
    assert inspect.iscoroutinefunction(two)
    assert await two("x") == (1, "x", (), 2.0, {})
    three = decorator(Client(Flaky(then="done")).async_method)
    assert inspect.iscoroutinefunction(three)
    assert await three(4) == ("instance", 4)


def test_built_in_functions_and_types_are_called_as_they_are() -> None:
    assert retry()(len)([1, 2]) == 2
    assert retry()(str.upper)("a") == "A"
    assert retry()(functools.lru_cache(lambda x: x + 1))(1) == 2
    assert retry_sync(dict) == {}


# ---- overloads and generics ----------------------------------------------------------------------------------------


@overload
def doubled(value: int) -> int: ...
@overload
def doubled(value: str) -> str: ...
@retry()
def doubled(value: Any) -> Any:
    """Twice the value."""
    return value * 2


class Box(Generic[T]):
    """A generic class with retried methods."""

    def __init__(self, value: T) -> None:
        self.value = value

    @retry()
    def get(self) -> T:
        """The value."""
        return self.value

    @retry()
    async def load(self, default: T) -> T:
        """The value, or a default."""
        return self.value or default


@retry()
def first(items: list[T]) -> T:
    """The first of them."""
    return items[0]


def test_overloads_and_generics_go_through() -> None:
    assert (doubled(2), doubled("a")) == (4, "aa")
    assert doubled.__name__ == "doubled"
    assert first([3, 4]) == 3
    assert Box[int](3).get() == 3
    assert asyncio.run(Box[str]("").load("default")) == "default"
    assert list(inspect.signature(Box.load).parameters) == ["self", "default"]


def test_functions_of_one_decorator_share_nothing() -> None:
    decorate = retry(max_attempts=2)
    one, two = Flaky(ConnectionError(), "one"), Flaky(ConnectionError(), "two")
    with FakeTime():
        assert (decorate(one)(), decorate(two)()) == ("one", "two")
    assert (one.calls, two.calls) == (2, 2)


def test_a_function_that_only_makes_a_context_manager_is_refused_with_the_correction() -> None:
    for make in (contextlib.contextmanager, contextlib.asynccontextmanager):

        def session() -> Any:
            yield

        with pytest.raises(TypeError, match=r"attempts\(\)"):
            retry()(make(session))

"""From an error to the errors in it: the leaves of a group, and what an error was made from.

Decided here: how far is looked, and which links are followed. Bounded, and no error is seen twice. An error that was
only being handled while another was raised (`__context__`) is not what that one means; it is followed only from the
classes of network libraries, where the root cause hides there.
"""

from __future__ import annotations

from collections.abc import Iterator

from forbear.classify.attributes import attributes_of, tried

MOST = 32  # links that are followed
MOST_IN_GROUPS = 1_000  # errors and groups that are judged; what is larger is permanent
_LINKS = ("reason", "inner_exception", "original_exception", "os_error")


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors in a group and in the groups in it, each once; a last one that says so where there are too many."""
    todo: list[BaseException] = [group]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > MOST_IN_GROUPS:
            yield RuntimeError("a group too large to be judged")
            return
        if isinstance(one, BaseExceptionGroup):
            todo.extend(reversed(one.exceptions))
        else:
            yield one


def made_from(error: BaseException, *, contexts: bool) -> Iterator[BaseException]:
    """What the error was made from, the nearest first.

    `contexts` also follows what was being handled at the very place where an error was raised: network libraries raise
    their own error there. What a caller was handling further up is another request's matter.
    """
    seen = {id(error)}
    todo = _links(error, contexts)
    while todo and len(seen) < MOST:
        one = todo.pop(0)
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            todo = _links(one, contexts) + todo


def with_origins(error: BaseException) -> Iterator[BaseException]:
    """The error, the leaves of a group, and what they were made from on purpose (`raise ... from`)."""
    for one in leaves(error) if isinstance(error, BaseExceptionGroup) else (error,):
        yield one
        yield from made_from(one, contexts=False)


def _links(error: BaseException, contexts: bool) -> list[BaseException]:
    found = [] if error.__cause__ is None else [error.__cause__]
    own = attributes_of(error)
    if own:
        found += [own[name] for name in _LINKS if name in own and tried(isinstance, own[name], BaseException)]
    context = error.__context__
    if contexts and context is not None and _is_meant(error, context):
        found.append(context)  # also where it is suppressed: httpcore hides the OS error there
    return found


def _is_meant(error: BaseException, context: BaseException) -> bool:
    """Whether the frame that raised the error had caught its context, as where one is made of the other.

    What a caller was handling when it made its call was caught in a frame further up. litellm does both in two frames.
    """
    if str(type(error).__module__).startswith("litellm."):
        return True
    trace = error.__traceback__
    if context.__traceback__ is None or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return context.__traceback__.tb_frame is trace.tb_frame

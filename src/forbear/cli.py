"""The `forbear` command.

Decided here: what its options are called, what mistakes are told, and its exit codes: 0 done, 1 the demo failed,
2 it was called wrongly or something is not installed, 130 stopped with Ctrl-C. The demo is loaded only when it is asked
for, so that the command works, and says what is missing, without the demo's packages.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from forbear import __version__
from forbear.classify.explain import explain, in_words, page

# Above this the clients' own work, not the trouble, would decide the figures.
MOST_CALLS = 1000
NEEDS = ("httpx", "rich")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and gives its exit code. argparse leaves with 2 by itself where the options make no sense."""
    parser = parser_of_forbear()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        if options.command == "explain-error":
            return explain_error(options)
        return demo(calls=options.calls, seed=options.seed, as_json=options.json)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read has left; without this the interpreter would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser_of_forbear() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="forbear", description="Retries that end in time, obey the server, and never make an outage worse."
    )
    parser.add_argument("--version", action="version", version=f"forbear {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    about = "a naive retry loop and forbear, side by side, against an API on this machine that misbehaves"
    command = commands.add_parser("demo", help=about, description=f"Shows {about}. Takes under 30 seconds.")
    command.add_argument(
        "--calls", type=calls_of, default=300, metavar="N", help=f"calls of each contender, 1 to {MOST_CALLS} (300)"
    )
    command.add_argument("--seed", type=seed_of, default=7, metavar="N", help="chooses the trouble (7)")
    command.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    add_explain_error(commands.add_parser)
    return parser


def add_explain_error(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """The options of `forbear explain-error`."""
    about = "the verdict on a failed answer, and the rule that gave it"
    command = add_parser("explain-error", help=about, description=f"Prints {about}.")
    command.add_argument("--status", type=status_of, metavar="N", help="the HTTP status, 400 to 599")
    command.add_argument(
        "--header", type=header_of, action="append", default=[], metavar="'NAME: VALUE'", help="as often as needed"
    )
    command.add_argument("--body", default="", metavar="TEXT", help="the body, or @FILE to read it from a file")
    command.add_argument("--provider", default="", metavar="NAME", help="the library, such as openai or cohere")
    command.add_argument("--table", action="store_true", help="print all rules, as Markdown, and nothing else")


def explain_error(options: argparse.Namespace) -> int:
    """Prints a verdict, or the whole book."""
    if options.table:
        print(page(), end="")
        return 0
    if options.status is None and not options.body:
        print("nothing to explain: give a --status, a --body, or both", file=sys.stderr)
        return 2
    body: str = options.body
    if body.startswith("@"):
        try:
            body = Path(body[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            print(f"can't read {body[1:]}: {type(error).__name__}", file=sys.stderr)
            return 2
    print(in_words(explain(options.status, dict(options.header), body, provider=options.provider, now=time.time())))
    return 0


def status_of(text: str) -> int:
    """A status of a failure. Raises ArgumentTypeError, with the correction."""
    number = seed_of(text)
    if not 400 <= number <= 599:
        raise argparse.ArgumentTypeError(f"{number} is no failure: write a status from 400 to 599")
    return number


def header_of(text: str) -> tuple[str, str]:
    """A name and a value. Raises ArgumentTypeError, with the correction."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no header: write 'Retry-After: 5'")
    return name.strip(), value.strip()


def demo(*, calls: int, seed: int, as_json: bool) -> int:
    """Loads the demo and runs it."""
    try:
        room = importlib.import_module("forbear.demo.run")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDS:
            raise
        print(f"the demo needs {error.name}, which is not installed: pip install 'forbear[demo]'", file=sys.stderr)
        return 2
    code: int = room.run(calls=calls, seed=seed, as_json=as_json)
    return code


def calls_of(text: str) -> int:
    """A number of calls. Raises ArgumentTypeError, with the correction."""
    number = seed_of(text)
    if not 1 <= number <= MOST_CALLS:
        raise argparse.ArgumentTypeError(f"{number} is not possible: write a number from 1 to {MOST_CALLS}")
    return number


def seed_of(text: str) -> int:
    """A whole number. Raises ArgumentTypeError, with the correction."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number: write for example 7") from None

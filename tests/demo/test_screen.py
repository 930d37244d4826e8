import io

from rich.console import Console

from forbear.demo.figures import figures_of
from forbear.demo.load import Outcome, Tally, contenders
from forbear.demo.screen import Bars, Lines, Moment, Nothing, closing, opening, screen_on

OUTCOMES = [Outcome(elapsed=0.5, error=None), Outcome(elapsed=7.0, error="ReadTimeout")]


def console(**options: object) -> Console:
    return Console(file=io.StringIO(), width=100, highlight=False, markup=False, **options)  # type: ignore[arg-type]


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def tallies() -> list[Tally]:
    return [Tally(contender, 10, list(OUTCOMES)) for contender in contenders(7)]


def moment(elapsed: float, phase: str = "outage: 503") -> Moment:
    state = {"elapsed": elapsed, "phase": phase, "requests": 17, "too_early": 0, "answers": {}}
    return Moment(tallies=tallies(), states=[state, state])


def test_a_terminal_gets_bars_with_counts_and_what_the_server_is_doing():
    terminal = console(force_terminal=True, force_interactive=True, legacy_windows=False)
    with screen_on(terminal, tallies()) as screen:
        assert isinstance(screen, Bars)
        screen.show(moment(2.5))
    shown = text_of(terminal)
    for part in ("naive loop", "forbear", "2/10", "1 ok", "1 failed", "17 requests", "2.5 s", "outage: 503"):
        assert part in shown


def test_a_pipe_gets_plain_lines_when_the_server_changes_and_every_two_seconds():
    pipe = console()
    with screen_on(pipe, tallies()) as screen:
        assert isinstance(screen, Lines)
        for elapsed, phase in (
            (0.0, "fine"),
            (0.2, "fine"),
            (0.4, "outage: 503"),
            (2.2, "outage: 503"),
            (2.5, "outage: 503"),
        ):
            screen.show(moment(elapsed, phase))
    lines = text_of(pipe).splitlines()
    assert [line.split()[0] for line in lines] == ["0.0", "0.4", "2.5"]
    assert "naive loop 1/2 ok" in lines[1]
    assert "\x1b" not in text_of(pipe)


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with screen_on(console(force_terminal=True), tallies()) as screen:
        assert isinstance(screen, Lines)


def test_nothing_shows_nothing():
    Nothing().show(moment(1.0))


def test_the_opening_says_what_each_contender_may_do():
    pipe = console()
    opening(pipe, tallies(), seed=7, seconds=9.0)
    assert "10 calls each over 9 s" in text_of(pipe)
    assert "no deadline" in text_of(pipe)
    assert "deadline 6 s" in text_of(pipe)


def test_the_closing_has_the_table_the_failures_and_the_sentence():
    pipe = console()
    state = {"requests": 5, "too_early": 2, "answers": {"ok": 5}}
    figures = figures_of(OUTCOMES, state)
    closing(pipe, ["naive loop", "forbear"], [figures, figures], "In this run all was level.")
    shown = text_of(pipe)
    for part in ("measured in this run", "1 of 2", "2.50", "7.00 s", "1 ReadTimeout", "In this run all was level."):
        assert part in shown
    assert "\x1b" not in shown

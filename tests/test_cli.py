import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import forbear
from forbear import cli


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What the demo was asked for; it is not run."""
    seen: list[dict[str, object]] = []

    def run(**options: object) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(importlib, "import_module", lambda _name: SimpleNamespace(run=run))
    return seen


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def import_module(_name: str) -> object:
        raise error

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"forbear {forbear.__version__}\n"


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]):
    assert cli.main([]) == 2
    assert "demo" in capsys.readouterr().err


def test_the_demo_has_defaults(asked: list[dict[str, object]]):
    assert cli.main(["demo"]) == 0
    assert asked == [{"calls": 300, "seed": 7, "as_json": False}]


def test_the_demo_takes_its_options(asked: list[dict[str, object]]):
    assert cli.main(["demo", "--calls", "40", "--seed", "-3", "--json"]) == 0
    assert asked == [{"calls": 40, "seed": -3, "as_json": True}]


@pytest.mark.parametrize(
    ("options", "correction"),
    [
        (["--calls", "0"], "0 is not possible: write a number from 1 to 1000"),
        (["--calls", "-5"], "-5 is not possible"),
        (["--calls", "1001"], "1001 is not possible"),
        (["--calls", "many"], "'many' is not a whole number"),
        (["--calls", "1.5"], "'1.5' is not a whole number"),
        (["--seed", "x"], "'x' is not a whole number"),
    ],
)
def test_a_number_that_makes_no_sense_is_answered_with_the_correction(
    options: list[str], correction: str, asked: list[dict[str, object]], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as left:
        cli.main(["demo", *options])
    assert left.value.code == 2
    assert correction in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize("missing", ["httpx", "rich.console"])
def test_a_missing_package_is_named_with_what_to_type(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    raising(monkeypatch, ModuleNotFoundError(f"No module named {missing!r}", name=missing))
    assert cli.main(["demo"]) == 2
    assert "pip install 'forbear[demo]'" in capsys.readouterr().err


def test_another_missing_module_is_not_explained_away(monkeypatch: pytest.MonkeyPatch):
    raising(monkeypatch, ModuleNotFoundError("No module named 'h11'", name="h11"))
    with pytest.raises(ModuleNotFoundError):
        cli.main(["demo"])


def test_ctrl_c_leaves_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    raising(monkeypatch, KeyboardInterrupt())
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_the_command_works_without_the_demos_packages():
    code = (
        "import sys\n"
        "sys.modules['httpx'] = sys.modules['rich'] = None\n"  # as if they were not installed
        "from forbear.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "demo"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "pip install 'forbear[demo]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently there")
def test_a_reader_that_leaves_early_gets_no_traceback():
    code = (
        "import sys, types, importlib\n"
        "def run(**options):\n"
        "    print('x' * 100_000, flush=True)\n"
        "    return 0\n"
        "importlib.import_module = lambda name: types.SimpleNamespace(run=run)\n"
        "from forbear.cli import main\n"
        "sys.exit(main(['demo']))\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=30, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_answer_is_explained_with_the_rule_that_decided(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"error": {"code": "insufficient_quota"}}', encoding="utf-8")
    assert cli.main(["explain-error", "--status", "429", "--header", "Retry-After: 5", "--body", f"@{body}"]) == 0
    said = capsys.readouterr().out
    assert "kind: quota spent" in said
    assert "insufficient_quota" in said
    assert "wait: 5 s" in said
    assert cli.main(["explain-error", "--table"]) == 0
    assert "# What every error means" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "correction"),
    [
        ([], "give a --status"),
        (["--status", "200"], "400 to 599"),
        (["--status", "x"], "not a whole number"),
        (["--status", "429", "--header", "nonsense"], "'Retry-After: 5'"),
        (["--body", "@missing.json"], "can't read missing.json"),
    ],
)
def test_a_wrong_use_of_explain_error_is_told(
    options: list[str], correction: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(["explain-error", *options])
    except SystemExit as left:
        code = int(str(left.code))
    assert code == 2
    assert correction in capsys.readouterr().err

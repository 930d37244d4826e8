"""The house keeps its laws: who may import whom, what is pure, how large things are, what is public."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forbear

sys.path.insert(0, str(Path(__file__).parent))
import laws

ROOT = Path(forbear.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def module_of(path: Path) -> str:
    """`core.backoff` for `core/backoff.py`, `core` for `core/__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def room_of(module: str) -> str:
    return module if module in laws.IMPORTS else module.partition(".")[0]


def imports(tree: ast.AST, *, typing_too: bool = True) -> Iterator[tuple[str, ast.stmt]]:
    """Every imported module with its statement; those for type checkers only if asked for."""
    skipped = set() if typing_too else {id(node) for test in type_checking(tree) for node in ast.walk(test)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full.removeprefix("forbear.") in MODULES else str(node.module)), node


def type_checking(tree: ast.AST) -> Iterator[ast.If]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield node


def ours(tree: ast.AST, *, typing_too: bool = False) -> Iterator[tuple[str, ast.stmt]]:
    for name, node in imports(tree, typing_too=typing_too):
        if name == "forbear" or name.startswith("forbear."):
            yield name.removeprefix("forbear").removeprefix(".") or "__init__", node


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of code, without the docstring."""
    body = function.body
    has_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1].lineno if has_text and len(body) > 1 else function.lineno
    return (function.end_lineno or first) - first + 1


def test_every_room_has_its_law() -> None:
    rooms = {room_of(module) for module in MODULES} - {"observe"}
    assert rooms == set(laws.IMPORTS)


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_what_it_may(module: str) -> None:
    room = room_of(module)
    allowed = laws.IMPORTS.get(room, set()) | {room}
    wrong = [
        name
        for name, _ in ours(MODULES[module])
        if not any(name == may or name.startswith(may + ".") for may in allowed)
        if module != "__init__"  # the front door names everything, for type checkers and lazily
    ]
    assert not wrong, f"{module} must not import {wrong}"


@pytest.mark.parametrize("module", MODULES)
def test_only_the_partners_of_a_room_are_imported(module: str) -> None:
    partners = laws.PARTNERS.get(module, laws.PARTNERS.get(room_of(module), set()))
    allowed = partners | set(sys.stdlib_module_names) | {"forbear"}
    wrong = {name for name, _ in imports(MODULES[module])} - allowed
    assert not {name for name in wrong if name.partition(".")[0] not in allowed}


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in laws.PURE])
def test_the_pure_rooms_neither_wait_nor_ask(module: str) -> None:
    allowed = laws.PURE[room_of(module)] | {"forbear"}
    roots = {name.partition(".")[0] for name, _ in imports(MODULES[module])}
    assert roots <= allowed, f"{module} must not use {roots - allowed}"
    for node in ast.walk(MODULES[module]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in laws.IMPURE_CALLS, f"{module}:{node.lineno} reads a clock or throws dice"


@pytest.mark.parametrize("module", MODULES)
def test_nothing_of_ours_is_imported_inside_a_function(module: str) -> None:
    if module in laws.LAZY:
        return
    for function in functions(MODULES[module]):
        assert not list(ours(function)), f"{module}.{function.name} hides an import"


def test_no_module_is_part_of_a_circle() -> None:
    graph = {module: {name for name, _ in ours(tree)} for module, tree in MODULES.items() if module != "__init__"}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a circle: {' -> '.join([*path, module])}"
        if module not in done:
            for name in sorted(graph.get(module, ())):
                visit(name, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_functions_are_short() -> None:
    sizes = {f"{module}.{f.name}:{f.lineno}": lines_of(f) for module, tree in MODULES.items() for f in functions(tree)}
    long = {name: size for name, size in sizes.items() if size > laws.LINES_OF_A_FUNCTION}
    assert not long
    assert sum(sizes.values()) / len(sizes) <= laws.MEAN_LINES_OF_A_FUNCTION


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_files_are_short_and_say_what_they_decide(path: Path) -> None:
    module = module_of(path)
    limit = laws.LINES_OF_A_FILE.get(room_of(module), laws.LINES_OF_A_FILE[""])
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit
    assert ast.get_docstring(MODULES[module]), "a module opens with what is decided there"
    assert not laws.FORBIDDEN_NAMES & set(module.split("."))


def test_drivers_are_thin() -> None:
    lines = {module_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    drivers = {module: n for module, n in lines.items() if room_of(module) in ("_sync", "_aio")}
    assert max(drivers.values()) <= laws.LINES_OF_A_DRIVER
    assert sum(drivers.values()) <= laws.SHARE_OF_THE_DRIVERS * sum(lines.values())


def fresh_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_forbear_costs_next_to_nothing() -> None:
    found = fresh_python(
        "import sys; before = set(sys.modules); import forbear; new = set(sys.modules) - before; "
        "print(len(new), 'asyncio' in sys.modules, 'typing' in new, [n for n in new if 'forbear' in n])"
    )
    count, asyncio_loaded, typing_loaded, modules = found.split(" ", 3)
    assert int(count) <= laws.MODULES_AT_IMPORT
    assert (asyncio_loaded, typing_loaded, modules) == ("False", "False", "['forbear']")


def test_no_partner_is_loaded_by_the_calls() -> None:
    found = fresh_python(
        "import forbear, sys; [getattr(forbear, name) for name in forbear.__all__]; "
        "print({'httpx', 'rich', 'trio', 'uvloop', 'pytest'} & set(sys.modules))"
    )
    assert found == "set()"


def test_the_public_names_are_the_reviewed_ones() -> None:
    reviewed = (Path(__file__).parent / "public_names.txt").read_text(encoding="utf-8").split()
    assert sorted(forbear.__all__) == sorted(reviewed)
    testing = __import__("forbear.testing", fromlist=["__all__"])
    assert sorted(testing.__all__) == ["Events", "FakeTime", "Flaky", "Hang", "instant_waits", "record_events"]


def test_every_public_name_exists_is_documented_and_known_to_type_checkers() -> None:
    declared = {
        alias.asname
        for block in type_checking(MODULES["__init__"])
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == set(forbear.__all__) - {"__version__"}
    for name in declared:
        value = getattr(forbear, str(name))
        assert value.__doc__ or name == "Event", f"{name} has no docstring"
    assert set(dir(forbear)) == set(forbear.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'retri'"):
        _ = forbear.retri  # type: ignore[attr-defined]


def test_blocking_code_loads_no_event_loop() -> None:
    found = fresh_python(
        "import sys; from forbear import retry_sync, RetryError; retry_sync(lambda: 1); print('asyncio' in sys.modules)"
    )
    assert found == "False"

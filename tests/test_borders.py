"""The borders between packages, checked on the source and in fresh processes."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from restrain_openrlhf.method import METHODS
from tests.conftest import ROOT

PACKAGE = ROOT / "restrain_openrlhf"
HOST = ("openrlhf", "ray", "deepspeed")
OURS = ("restrain_openrlhf", "test_time", "tests", "tools", "benchmarks")
# The one kind of answer that is a model imports what runs it once it is used.
ENCODER = "answers/kinds/embedding.py"
# What `restrain gpu-check` measures is the host's own: these modules of it run in processes of their own.
MEASURED = [f"commands/gpu_check/{name}.py" for name in ("gradient", "host_step", "memory")]


def imports(path: Path) -> set[str]:
    """Every module named in an import statement, wherever it stands."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def modules(folder: str) -> list[Path]:
    found = sorted((PACKAGE / folder).rglob("*.py"))
    assert found, f"there is no {folder}/"
    return found


def offenders(paths, prefixes):
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imports(path)
        if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
    ]


def test_the_host_is_imported_by_the_hook_alone_and_by_what_gpu_check_measures():
    inside = {*modules("hook"), *(PACKAGE / name for name in MEASURED)}
    assert offenders([PACKAGE / name for name in MEASURED], HOST), "none of them imports the host any longer"
    outside = [path for path in modules(".") if path not in inside]
    assert offenders(outside, HOST) == []


def room(module: str) -> str | None:
    """The folder of ours that a module lies in; None for another package's."""
    top, _, rest = module.partition(".")
    if top == PACKAGE.name:
        return rest.partition(".")[0] or None
    return top if top == "test_time" else None


# From top to bottom: a folder imports those below it alone, and none of its own line.
FLOORS = (
    ("test_time",),
    ("commands",),
    ("evaluation", "hook"),
    ("records", "scoring"),
    ("reference",),
    ("config", "data"),
    ("answers",),
    ("machine", "method"),
    ("errors",),
)
FLOOR = {name: len(FLOORS) - number for number, names in enumerate(FLOORS) for name in names}


def test_every_folder_imports_what_lies_below_it_alone():
    sources = [*modules("."), *sorted((ROOT / "test_time").rglob("*.py"))]
    upward = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources
        for name in imports(path)
        if (here := room(".".join(path.relative_to(ROOT).with_suffix("").parts))) in FLOOR
        and (there := room(name)) in FLOOR
        and there != here
        and FLOOR[there] >= FLOOR[here]
    ]
    assert upward == []
    assert {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name[0] not in "_."} <= {
        *FLOOR,
        "py.typed",
        "repository",
    }


def test_no_files_import_each_other_in_a_circle():
    """Imports inside functions count, too; a package's face hands names on and is left out."""
    files = [path for path in [*modules("."), *(ROOT / "test_time").rglob("*.py")] if path.name != "__init__.py"]
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    graph = {path: {named[name] for name in imports(path) if named.get(name, path) != path} for path in files}
    TopologicalSorter(graph).prepare()


def test_no_command_imports_another():
    """What two of them need lies in `options`, or below the commands."""
    commands = PACKAGE / "commands"
    prefix = "restrain_openrlhf.commands."
    siblings = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in commands.rglob("*.py")
        if (own := path.relative_to(commands).parts[0].removesuffix(".py")) != "main"
        for name in imports(path)
        if name.startswith(prefix) and name.removeprefix(prefix).partition(".")[0] not in (own, "options")
    ]
    assert siblings == []


def test_nothing_imports_the_cpu_stand_ins():
    outside = [path for path in modules(".") if "cpu" not in path.relative_to(PACKAGE).parts]
    assert offenders([*outside, *sorted((ROOT / "test_time").rglob("*.py"))], ["restrain_openrlhf.machine.cpu"]) == []


def test_the_maths_the_answers_and_kept_rollouts_import_no_framework():
    paths = {*modules("method"), *modules("answers"), PACKAGE / "records/kept.py"} - {PACKAGE / ENCODER}
    assert offenders(paths, [*HOST, "torch", "vllm", "transformers"]) == []


FRAMEWORKS = ("torch", "transformers", "ray", "openrlhf", "vllm", "sympy")


def test_none_of_these_loads_a_framework():
    modules = ["scoring.library", "method", "answers", "scoring", "commands.main", "scoring.service.server"]
    statement = "import " + ", ".join(f"restrain_openrlhf.{name}" for name in modules)
    assert brought("pass", statement) & set(FRAMEWORKS) == set()


# What the agent imports besides this package, Python's own modules and what these bring.
LIGHT = "aiohttp, annotated_types, mpmath, numpy, pydantic, wrapt, yaml"


def brought(before: str, statement: str) -> set[str]:
    """Packages that a statement brings into a fresh process which has run another, those of Python itself left out."""
    tops = "{name.partition('.')[0] for name in sys.modules}"
    script = f"import sys; {before}; there = {tops}; {statement}; print(*{tops} - there)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name[0] != "_"} - set(sys.stdlib_module_names)


def test_other_trainers_are_imported_by_their_own_modules_alone():
    own = {PACKAGE / "scoring" / f"{name}.py": name for name in ("trl", "verl")}
    for path, name in own.items():
        assert offenders([path], [name]) != []
        assert (
            offenders([other for other in modules(".") if other != path], [name, f"restrain_openrlhf.scoring.{name}"])
            == []
        )


def test_the_package_alone_imports_nothing():
    assert brought("pass", "import restrain_openrlhf") == {PACKAGE.name}


def test_the_agent_imports_what_is_light_beside_what_every_rollout_actor_has():
    pytest.importorskip("openrlhf", reason="needs the training stack: make install")
    host = f"import openrlhf.utils.agent, ray, {LIGHT}"
    assert brought(host, "import restrain_openrlhf.hook.agent") == {PACKAGE.name}


def test_every_module_opens_with_a_sentence():
    for path in [*modules("."), *sorted((ROOT / "test_time").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{path} says nothing of itself"


def test_no_branch_on_a_methods_name():
    for path in modules("."):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                words = {getattr(side, "value", None) for side in (node.left, *node.comparators)}
                assert not words & set(METHODS), f"{path}: line {node.lineno}"


def test_no_two_classes_have_one_name():
    places: dict[str, list[str]] = {}
    for path in [*modules("."), *sorted((ROOT / "test_time").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def defined(path: Path) -> set[str]:
    """The names that a module has at its top level, below `if` and `try` too."""
    names, found = set(), list(parsed(path).body)
    while found:
        node = found.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        names |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        found += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.excepthandler)]
    return names


def test_what_is_imported_of_our_own_is_there():
    """By what only other machines run, too: no type checker reads the tests, tools and benchmarks."""
    paths = [path for folder in OURS for path in (ROOT / folder).rglob("*.py")]
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    absent = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in paths
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in OURS
        for alias in node.names
        if f"{node.module}.{alias.name}" not in files
        and not (node.module in files and alias.name in defined(files[node.module]))
    ]
    assert absent == []

"""The borders between packages, checked on the source and in fresh processes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from restrain_openrlhf.method import METHODS
from tests.conftest import ROOT

PACKAGE = ROOT / "restrain_openrlhf"
HOST = ("openrlhf", "ray", "deepspeed")


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
    return sorted((PACKAGE / folder).rglob("*.py"))


def offenders(paths, prefixes):
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imports(path)
        if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
    ]


def test_the_host_is_imported_by_the_hook_alone():
    outside = [path for path in modules(".") if "hook" not in path.relative_to(PACKAGE).parts]
    assert offenders(outside, HOST) == []


def test_nothing_imports_the_cpu_stand_ins():
    outside = [path for path in modules(".") if "cpu" not in path.relative_to(PACKAGE).parts]
    assert offenders([*outside, *sorted((ROOT / "test_time").rglob("*.py"))], ["restrain_openrlhf.cpu"]) == []


@pytest.mark.parametrize("folder", ["method", "answers", "rollouts", "kept"])
def test_the_maths_the_answers_and_kept_rollouts_import_no_framework(folder):
    assert offenders(modules(folder), [*HOST, "torch", "vllm", "transformers"]) == []


@pytest.mark.parametrize(
    "module",
    [
        "restrain_openrlhf.method",
        "restrain_openrlhf.answers",
        "restrain_openrlhf.scoring",
        "restrain_openrlhf.cli.main",
        "restrain_openrlhf.reward.server",
    ],
)
def test_importing_it_loads_no_framework(module):
    script = (
        f"import sys, {module}; print([m for m in ('torch', 'ray', 'openrlhf', 'vllm', 'sympy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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

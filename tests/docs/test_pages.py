"""The pages name every key and command, and whatever pages and sources name is there. Runs without mkdocs."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args

import pytest
import typer
import yaml
from pydantic import BaseModel

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.scoring.service.service_config import ServiceConfig
from tests.conftest import ROOT

DOCS = ROOT / "docs"
TEXTS = sorted(DOCS.rglob("*.md"))
READ_IN_THE_REPOSITORY = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")
# As pages name a function: `hook/agent.py: AgentExecutor.execute`.
FUNCTION = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
FOLDERS = (ROOT / "restrain_openrlhf", ROOT)


@pytest.fixture(scope="module")
def reference_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_pages", DOCS / "reference_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_those_of_the_code(reference_pages):
    written = {name: (DOCS / name).read_text(encoding="utf-8") for name in reference_pages.pages()}
    stale = [name for name, text in reference_pages.pages().items() if written[name] != text]
    assert stale == [], "run `make pages`"


@pytest.mark.parametrize("choices", ["METHODS", "KINDS"])
def test_every_key_of_a_method_or_kind_is_in_a_row_that_names_it(choices, reference_pages):
    models = getattr(reference_pages, choices)
    page = reference_pages.choices(models)
    rows = re.findall(r"^\| (all|`.+?) \| `([\w.]+)` \| ", page, re.MULTILINE)
    for name, model in models.items():
        assert f"\n| `{name}` | " in page
        of_it = {key for of, key in rows if of == "all" or f"`{name}`" in of}
        assert set(model.model_fields) - {"name"} == of_it, name


NAMED = ("method", "answers")


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys of a model; those that depend on a block's own name are one key here."""
    for name, field in model.model_fields.items():
        types = [field.annotation, *get_args(field.annotation)]
        blocks = [each for each in types if isinstance(each, type) and issubclass(each, BaseModel)]
        is_block = blocks and name not in NAMED
        yield from keys_of(blocks[0], f"{prefix}{name}.") if is_block else [prefix + name]


@pytest.mark.parametrize("model", [RunConfig, ServiceConfig])
def test_every_key_of_a_configuration_file_is_on_its_page(model, reference_pages):
    page, keys = reference_pages.configuration_page(), list(keys_of(model))
    assert len(keys) > 3
    assert [key for key in keys if f"\n| `{key}` |" not in page] == []


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {word}", inner)


def test_every_command_and_option_is_on_its_page(reference_pages):
    """The options on the site alone: `docs/hooks.py` writes them there."""
    listed, page = reference_pages.commands_page(), reference_pages.options_of_commands()
    for program, app in reference_pages.COMMANDS.items():
        for name, command in commands(program, typer.main.get_command(app)):
            assert hasattr(command, "commands") or f"\n| `{name}` | " in listed
            found = re.search(rf"^##+ `{name}`$(.*?)(?=^##+ `|\Z)", page, re.MULTILINE | re.DOTALL)
            assert found, f"{name} is not on the page"
            options = [parameter.opts[0] for parameter in command.params if parameter.opts[0].startswith("-")]
            assert [option for option in options if option not in found[1]] == [], name


def nav_pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for inner in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from nav_pages(inner)


def test_the_navigation_has_every_page_once(reference_pages):
    """Pages for few readers are linked from the index instead."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    outside = [path.relative_to(DOCS).as_posix() for glob in site["not_in_nav"].split() for path in DOCS.glob(glob)]
    nav = [*nav_pages(site["nav"]), *outside]
    written = {path.relative_to(DOCS).as_posix() for path in TEXTS}
    made = {name for name in reference_pages.pages() if name.endswith(".md")}
    assert sorted(nav) == sorted(written | made)


def test_links_between_pages_lead_somewhere():
    """In the repository too, where pages are read without the site."""
    links = [
        (path, link)
        for path in [*TEXTS, *(ROOT / name for name in READ_IN_THE_REPOSITORY)]
        for link in LINK.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(links) > 200
    assert [f"{path.name}: {link}" for path, link in links if not (path.parent / link).exists()] == []


def test_a_test_that_a_page_names_is_there():
    texts = [path.read_text(encoding="utf-8") for path in [*TEXTS, *(ROOT / name for name in READ_IN_THE_REPOSITORY)]]
    named = {path for text in texts for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text)}
    assert len(named) > 10
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_function_that_a_page_names_is_there(path):
    named = FUNCTION.findall(path.read_text(encoding="utf-8"))
    assert [f"{file}: {name}" for file, name in named if not is_defined(file, name)] == []


def is_defined(file: str, name: str) -> bool:
    """Whether one of our files has this function, class, method or constant."""
    for path in (folder / file for folder in FOLDERS):
        if path.is_file():
            return name in defined(ast.parse(path.read_text(encoding="utf-8")).body)
    return False


def defined(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            yield from defined(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (prefix + target.id for target in node.targets if isinstance(target, ast.Name))


def test_the_tree_of_the_architecture_page_is_the_tree():
    page = (DOCS / "concepts" / "architecture.md").read_text(encoding="utf-8")
    rows = page.partition("| folder | owns |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`([a-z_0-9]+)/`", row)}
    depths = [
        {path.name for path in (ROOT / "restrain_openrlhf").glob(depth) if path.is_dir()}
        for depth in ("*", "*/*", "*/*/*")
    ]
    first, second, third = (names - {"__pycache__", "repository"} for names in depths)
    assert {"test_time"} | first | second <= named <= {"test_time"} | first | second | third


def test_the_modules_of_the_python_api_are_there():
    named = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    places = [ROOT / name.replace(".", "/") for name in named]
    assert len(named) > 5
    assert [str(place) for place in places if not (place.with_suffix(".py").is_file() or place.is_dir())] == []

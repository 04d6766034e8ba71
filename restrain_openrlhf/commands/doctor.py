"""`restrain doctor`: checks versions, compilers, driver and memory of GPUs, and the contract with OpenRLHF."""

import importlib
import logging
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.errors import HostError, RestrainError
from restrain_openrlhf.machine.cuda import cuda_of_torch, why_not_compiled
from restrain_openrlhf.machine.devices import detect, gpus
from restrain_openrlhf.machine.flash_attention import BY_TORCH, EXTENSION, has_extension, why_not_by_torch
from restrain_openrlhf.machine.host_releases import Way, check_version, installed, version_of, why_another_torch

# Our own requirement. Those of OpenRLHF are in the table of its releases.
OWN_PINS = {"latex2sympy2": "1.9.1"}
# The oldest driver for each CUDA release (CUDA's release notes, "CUDA Driver"; Linux x86-64).
OLDEST_DRIVER = {12: 525, 13: 580}
# If less than this share of a GPU is free, something else is running on it.
FREE_SHARE = 0.9
SHM = "/dev/shm"
# The size that NVIDIA's containers recommend (`--shm-size=1g`). By default a container has 64 MiB.
LEAST_SHM_MIB = 1024


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was found, and advice where it fails or can be improved."""

    name: str
    found: str
    ok: bool
    advice: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
) -> None:
    """Check versions, driver, GPUs, and that the hook fits OpenRLHF. Exits with status 1 if a check fails."""
    # vLLM and bitsandbytes print, when they are imported, what is not a finding.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    with Console(stderr=True).status("importing OpenRLHF"):
        findings = list(_findings())
    if as_json:
        typer.echo("".join(dump(asdict(finding)) for finding in findings), nl=False)
    else:
        Console().print(_table(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _table(findings: list[Finding]) -> Table:
    table = Table("check", Column("found", overflow="fold"), Column("what to do", overflow="fold"))
    for finding in findings:
        mark = "[green]ok[/]" if finding.ok else "[red]no[/]"
        table.add_row(f"{mark} {finding.name}", finding.found, finding.advice)
    return table


def _findings() -> Iterator[Finding]:
    """All checks, in the order in which they depend on each other."""
    yield _openrlhf()
    yield from (_package(*pinned) for pinned in {**installed().pins, **OWN_PINS}.items())
    torch, reason = version_of("torch"), why_another_torch()
    yield _judged("torch", torch or "not installed", bool(torch and not reason), reason or "Run `make install`.")
    yield _compiler()
    yield _tried("accelerator", _accelerator)
    if detect().has_gpus:
        yield from gpu_findings()
    else:
        found = f"{detect().host_flags['ds.attn_implementation']}: no CUDA"
        yield Finding("attention", found, True, why_not_by_torch() or "")
        yield Finding("optimizer", "DeepSpeed's Adam, compiled by the C++ compiler at the first start", True)
    yield _tried("OpenRLHF contract", _contract)


def gpu_findings() -> Iterator[Finding]:
    """All checks of the CUDA stack: driver, memory, Python's headers, attention, optimizer."""
    yield from _gpus()
    yield _python_headers()
    yield _shared_memory()
    yield _attention()
    reason = why_not_compiled()
    found = f"torch's fused AdamW: {reason}" if reason else "DeepSpeed's Adam, compiled at the first start"
    yield Finding("optimizer", found, True)


def _judged(name: str, found: str, ok: bool, advice: str) -> Finding:
    return Finding(name, found, ok, "" if ok else advice)


def _tried(name: str, found: Callable[[], str]) -> Finding:
    """A passed check with what `found` returns, or a failed one with its error as advice."""
    try:
        return Finding(name, found(), True)
    except (RestrainError, ImportError) as error:
        return Finding(name, "no", False, str(error))


def _openrlhf() -> Finding:
    """A release that only supports the agent's file passes, and the finding says so."""
    hook = _tried("openrlhf", check_version)
    agent = _tried("openrlhf", lambda: f"{check_version(Way.AGENT)}: the agent's file alone")
    return hook if hook.ok or not agent.ok else replace(agent, advice=hook.advice)


def _package(name: str, pinned: str) -> Finding:
    """The version of a package, which for vLLM's CPU build has another name."""
    for distribution in (name, f"{name}-cpu"):
        if found := version_of(distribution):
            label = found if distribution == name else f"{found} ({distribution})"
            return _judged(name, label, found.split("+")[0] == pinned, f"Install {name}=={pinned}.")
    return Finding(name, "not installed", False, f"Install {name}=={pinned} (make install).")


def _compiler() -> Finding:
    path = shutil.which("g++") or shutil.which("c++")
    advice = "Install a C++ compiler (Debian: g++), which DeepSpeed and torch.compile need."
    return _judged("C++ compiler", path or "none", path is not None, advice)


def _python_headers() -> Finding:
    """Python's headers, with which Triton compiles a launcher for each kernel."""
    path = Path(sysconfig.get_path("include")) / "Python.h"
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
    advice = f"Install Python's headers (Debian: {package}): Triton, which vLLM's kernels need, compiles with them."
    return _judged("Python.h", str(path) if path.exists() else "none", path.exists(), advice)


def _accelerator() -> str:
    if not detect().has_gpus:
        return f"no GPU; stand-in {detect().name!r}"
    if cuda_of_torch() is None:
        raise HostError(
            "The GPU stack is installed, but its torch is built without CUDA, so that nothing can run on a GPU. "
            "Remove it (`pip uninstall torch`) and run `make install STACK=gpu` with a package index that has CUDA "
            "builds."
        )
    import torch  # noqa: PLC0415 - costs seconds

    if not torch.cuda.is_available():
        raise HostError("The CUDA stack is installed, but torch sees no GPU here. That is right only on a head node.")
    return ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def _gpus() -> Iterator[Finding]:
    """The driver, compared with what torch's CUDA needs, and the free memory of each GPU."""
    cuda = cuda_of_torch()
    oldest = OLDEST_DRIVER.get(int(cuda.split(".")[0]), 0) if cuda else 0
    wanted = f"Install NVIDIA's driver R{oldest} or newer: torch is built for CUDA {cuda}."
    try:
        machine = gpus()
    except HostError as error:
        yield Finding("NVIDIA driver", "no", False, f"{error} {wanted}" if oldest else str(error))
        return
    driver = machine[0].driver
    yield _judged("NVIDIA driver", driver, int(driver.split(".")[0]) >= oldest, wanted)
    for number, gpu in enumerate(machine):
        found = f"{gpu.name}: {gpu.free / 1024:.1f} of {gpu.total / 1024:.1f} GiB free"
        ok = gpu.free >= FREE_SHARE * gpu.total
        yield _judged(f"GPU {number}", found, ok, "`nvidia-smi` names the process that uses the rest.")


def _shared_memory() -> Finding:
    size = shutil.disk_usage(SHM).total // 2**20
    advice = f"Give {SHM} {LEAST_SHM_MIB} MiB or more (docker run --shm-size=8g): NCCL and Ray's store are there."
    return _judged(SHM, f"{size} MiB", size >= LEAST_SHM_MIB, advice)


def _attention() -> Finding:
    if not has_extension():
        advice = why_not_by_torch() or f"ds.attn_implementation {BY_TORCH} packs by torch's own kernel"
        advice += ". `make install-flash` adds flash_attention_2 and packing."
        return Finding("attention", "sdpa: flash-attn is not installed", True, advice)
    try:
        # torch loads the libraries to which the extension is linked.
        importlib.import_module("torch")
        importlib.import_module(EXTENSION)
    except ImportError as error:
        advice = (
            f"flash-attn was built for another torch ({error}). `pip uninstall flash-attn`, or `make install-flash`."
        )
        return Finding("attention", "flash_attention_2 cannot be loaded", False, advice)
    return Finding("attention", "flash_attention_2, and packing where it is asked for", True, why_not_by_torch() or "")


def _contract() -> str:
    from restrain_openrlhf.hook.install import instrument  # noqa: PLC0415 - imports the host

    detect().install()
    if Way.HOOK not in installed().ways:
        instrument.check_agent()
        return (
            f"{len(instrument.AGENT_CONTRACT)} methods of the host, which the agent's file alone relies on, as expected"
        )
    instrument.check_all()
    instrument.install()
    if missing := instrument.unpatched():
        raise HostError(f"The hook does not reach {', '.join(missing)}. Report this with what `restrain doctor` says.")
    return f"{len(instrument.CONTRACT)} methods of the host as expected, and the hook reaches those it changes"

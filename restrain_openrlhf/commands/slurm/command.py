"""`restrain slurm render`: writes one configuration and its offline pass as a Slurm job, in a folder of its own."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import typer
import yaml
from pydantic import BaseModel, ConfigDict, model_validator
from rich.console import Console

from restrain_openrlhf.commands.options import ConfigFile, Overrides, to_folder, with_options
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.config.nodes import Layout, NodeShape, flags_on_nodes, plan, run_name
from restrain_openrlhf.config.yaml_file import RunConfig, load_run_config
from restrain_openrlhf.data.outputs import write_whole
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.records.folder import adapts_at_test_time
from restrain_openrlhf.reference.sampling_pass import Shard

# No limit here: Slurm itself refuses a job that needs more nodes than there are.
ANY_NUMBER = 100_000
# Beside the process of each GPU there are processes of vLLM and Ray, and those that load data.
CPUS_PER_GPU = 8
# Options of sbatch that the script sets itself, or whose defaults it relies on.
SCRIPT_OPTIONS = (
    *("chdir", "cpus-per-task", "error", "gpus-per-node", "gres", "job-name", "mem", "nodes"),
    *("ntasks-per-node", "open-mode", "output", "requeue", "signal", "time"),
)
# Options of sbatch that would change what those mean, or start several jobs in one folder.
AGAINST_THE_SCRIPT = frozenset(
    ("array", "cpus-per-gpu", "gpus", "gpus-per-task", "mem-per-cpu", "mem-per-gpu", "no-requeue", "ntasks", "wrap")
)
SBATCH_OPTION = re.compile(r"(?P<name>[a-z][a-z-]+)(?:=(?P<value>[^\n\"]*))?")
node_option = partial(typer.Option, rich_help_panel="The nodes")
runtime_option = partial(typer.Option, rich_help_panel="Where commands run")


class JobOptions(BaseModel):
    """What is asked of Slurm, and where commands run. Each field is an option of `restrain slurm render`.

    Without `venv`, `apptainer` and `pyxis`, commands are found on the shell's PATH. A wrong time, memory or GPU is
    refused by sbatch itself.
    """

    model_config = ConfigDict(frozen=True)

    gpus_per_node: Annotated[int, node_option(min=1, help="GPUs per node.")]
    time: Annotated[str, typer.Option(help="Time limit of one start, in Slurm's format.")] = "24:00:00"
    warning: Annotated[
        int,
        typer.Option(
            min=60,
            metavar="SECONDS",
            help="Seconds before the time limit at which the job stops and is queued again.",
        ),
    ] = 300
    cpus_per_node: Annotated[int | None, node_option(min=1, help="CPUs per node.", show_default="8 per GPU")] = None
    mem: Annotated[str, node_option(help="Memory per node; 0: all of it.")] = "0"
    gpu_type: Annotated[str | None, node_option(help="Slurm's name of the GPU type, such as h100.")] = None
    gpu_memory: Annotated[
        int | None, node_option(min=1, metavar="GIB", help="Memory of one GPU. A CONFIG that cannot fit is refused.")
    ] = None
    sbatch: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE",
            help="Any other option of sbatch, such as partition=gpu. Repeatable.",
            show_default=False,
        ),
    ] = []
    venv: Annotated[Path | None, runtime_option(help="Virtual environment to activate.")] = None
    apptainer: Annotated[str | None, runtime_option(metavar="IMAGE", help="Container image, run by apptainer.")] = None
    pyxis: Annotated[
        str | None, runtime_option(metavar="IMAGE", help="Container image, run by Slurm's plugin pyxis.")
    ] = None
    bind: Annotated[
        list[str],
        runtime_option(metavar="FROM:TO", help="Folder that the container can see. Repeatable.", show_default=False),
    ] = []
    setup: Annotated[
        Path | None, runtime_option(metavar="FILE", help="Shell file to source first: modules, variables, secrets.")
    ] = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        """Raises ConfigError for contradicting options, missing files, and options that the script sets itself."""
        given = [name for name in ("venv", "apptainer", "pyxis") if getattr(self, name)]
        if len(given) > 1:
            raise ConfigError(
                f"--{given[0]} and --{given[1]} are both given. Give only the one where restrain is installed."
            )
        if self.bind and not (self.apptainer or self.pyxis):
            raise ConfigError("--bind is for a container. Add --apptainer IMAGE or --pyxis IMAGE, or leave it out.")
        if self.venv is not None and not (self.venv / "bin" / "activate").is_file():
            raise ConfigError(f"--venv {self.venv}: bin/activate is not there. Check the path.")
        if self.setup is not None and not self.setup.is_file():
            raise ConfigError(f"--setup {self.setup}: no such file. Check the path.")
        for option in self.sbatch:
            found = SBATCH_OPTION.fullmatch(option)
            if found is None:
                raise ConfigError(
                    f"--sbatch {option!r}: give the long name of an option of sbatch without dashes, then = and its "
                    "value: partition=gpu."
                )
            if found["name"] in SCRIPT_OPTIONS:
                raise ConfigError(
                    f"--sbatch {option!r}: the script sets {found['name']} itself. Use render's own options."
                )
            if found["name"] in AGAINST_THE_SCRIPT:
                raise ConfigError(f"--sbatch {option!r}: the script does not work with {found['name']}. Leave it out.")
        for name in ("time", "mem", "gpu_type"):
            if re.search(r"[\s#]", getattr(self, name) or ""):
                raise ConfigError(
                    f"--{name.replace('_', '-')} {getattr(self, name)!r}: has a space in it. Give it in Slurm's form."
                )
        return self

    @property
    def sbatch_lines(self) -> list[str]:
        """The other options of sbatch, as the script has them: a value with a space in quotes."""
        return [
            re.sub(r"=(.*[\s#].*)", r'="\1"', option, flags=re.DOTALL) if re.search(r"[\s#]", option) else option
            for option in self.sbatch
        ]

    @property
    def shape(self) -> NodeShape:
        """The resources of one node."""
        return NodeShape(
            gpus_per_node=self.gpus_per_node,
            max_nodes=ANY_NUMBER,
            cpus_per_node=self.cpus_per_node or CPUS_PER_GPU * self.gpus_per_node,
            gpu_memory=self.gpu_memory,
        )


slurm = typer.Typer(name="slurm", help="Write Slurm jobs.", no_args_is_help=True)


@slurm.command()
@with_options(JobOptions)
def render(
    config: ConfigFile,
    options: JobOptions,
    out: Annotated[Path, to_folder("New folder for the job, which all nodes must see.", metavar="DIR")],
    overrides: Overrides = None,
) -> None:
    """Write the Slurm job that trains CONFIG. Nodes and GPUs follow from its OpenRLHF flags. Needs no Slurm."""
    run, folder = load_run_config(config, parse_overrides(overrides or [])), out.absolute()
    if adapts_at_test_time(run):
        raise ConfigError(
            "The configuration is for test-time RL, which is started by `test-time adapt` with a model and problems. "
            "Call that in a script of your own on one node; this command writes jobs for `restrain train`."
        )
    flags = flags_on_nodes(run, options.shape)
    layout = plan(flags, options.shape)
    _make(folder)
    write_whole(folder / "experiment.yaml", _text(run))
    _write_scripts(folder, _values(run, options, folder, layout, int(flags["vllm.tensor_parallel_size"])))
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    nodes, gpus = _counted(layout.nodes, "node"), _counted(layout.gpus, "GPU")
    console.print(f"The job takes {nodes} with {gpus}{' each' * (layout.nodes > 1)}. Submit it with:")
    typer.echo(f"sbatch {folder / 'job.sh'}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}"


def _make(out: Path) -> None:
    for path in (out, Path.cwd()):
        if any(sign.isspace() for sign in str(path)):
            raise ConfigError(
                f"{path}: has a space in its name, which Slurm's options do not allow. Use another folder."
            )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: is not empty. Name a new folder: a queued job reads its files there.")
    (out / "logs").mkdir(parents=True)


def _text(config: RunConfig) -> str:
    """The whole configuration as YAML. A requeued job must not depend on later changes of CONFIG or a preset."""
    whole = config.model_dump(mode="json", exclude={"metrics", "method", "openrlhf"}, exclude_defaults=True)
    document = {**whole, "method": config.method.model_dump(mode="json"), "openrlhf": dict(config.openrlhf)}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _values(run: RunConfig, options: JobOptions, out: Path, layout: Layout, gpus_per_engine: int) -> dict[str, Any]:
    """Values for the templates. On several nodes the offline pass is drawn in shards, one for each engine."""
    folder, cpus = Path.cwd(), options.shape.cpus_per_node
    engines = max(layout.gpus // gpus_per_engine, 1)
    shards = engines * layout.nodes
    return {
        "name": run_name(f"{run.run_dir.parent.name}-{run.run_dir.name}"),
        "nodes": layout.nodes,
        "gpus": layout.gpus,
        "gpus_per_node": f"{options.gpu_type}:{layout.gpus}" if options.gpu_type else str(layout.gpus),
        # In proportion to the GPUs of the node that the job uses.
        "cpus": options.cpus_per_node or max(cpus * layout.gpus // options.gpus_per_node, CPUS_PER_GPU),
        "options": options,
        "folder": folder,
        # A container must see what the job reads and writes: its own folder, and the working folder of relative paths.
        "binds": [f"{out}:{out}", f"{folder}:{folder}", *options.bind],
        "out": out,
        "reference": run.read_reference,
        "engines_per_node": engines,
        "gpus_per_engine": gpus_per_engine,
        "shards": shards,
        "parts": [Shard(index, shards).path(run.read_reference) for index in range(shards) if run.read_reference],
    }


def _write_scripts(out: Path, values: dict[str, Any]) -> None:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - keeps `restrain --help` quick

    environment = Environment(
        loader=PackageLoader("restrain_openrlhf.commands.slurm", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Not Jinja's {#, which bash has in ${#array[@]}.
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters["quoted"] = _quoted
    for name in ("job.sh", "pass.sh") if values["reference"] and values["nodes"] > 1 else ("job.sh",):
        write_whole(out / name, environment.get_template(f"{name}.j2").render(values))
        (out / name).chmod(0o755)


def _quoted(value: object) -> str:
    """One word for bash, always in quotes: shellcheck takes a bare comma in an array for a mistake."""
    return "'" + str(value).replace("'", "'\\''") + "'"

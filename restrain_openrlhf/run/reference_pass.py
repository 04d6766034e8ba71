"""The offline pass of a run: the model, prompts, template, lengths and sampling of its configuration."""

from pathlib import Path
from typing import Any

from restrain_openrlhf.config.yaml_file import RunConfig
from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.hook.host_flags import host_flags, parse, to_arguments
from restrain_openrlhf.hook.preflight import prompt_source
from restrain_openrlhf.reference.offline_pass import OfflinePass
from restrain_openrlhf.run.offline_options import OfflineOptions
from restrain_openrlhf.run.processes import run_command


def sample_reference(
    config: RunConfig,
    out: Path,
    n: int | None = None,
    model: str | None = None,
    prompts: str | None = None,
    seed: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
) -> None:
    """Sample `n` rollouts of every prompt, on all visible GPUs; what is None is as the configuration says.

    `restrain reference` does so in a process of its own. Existing rollouts are kept. Raises RunError with the log's
    last lines where it fails, ConfigError where the configuration names no model or limit of new tokens.
    """
    given = {"model": model, "prompts": prompts, "seed": seed, "temperature": temperature, "top_p": top_p}
    options = _options(config, _flags(config), out, n, **given)
    out.parent.mkdir(parents=True, exist_ok=True)
    run_command(["reference", *options.words()], out.parent / "sampling.log")


def offline_pass(config: RunConfig, n: int | None = None, index: int = 0, count: int = 1) -> OfflinePass:
    """Shard `index` of `count` of the pass that the run needs, ready to run in this process.

    Raises ConfigError where the configuration names no reference, model or limit of new tokens; as OfflinePass.prepare.
    """
    if config.reference is None:
        raise ConfigError("The configuration names no file for the reference. Set `reference:`.")
    flags = _flags(config)
    options = _options(config, flags, config.reference, n)
    return OfflinePass.prepare(options.model, prompt_source(flags), options.sampling(), index, count)


def _flags(config: RunConfig) -> dict[str, Any]:
    return vars(parse(to_arguments(host_flags(config))))


def _options(
    config: RunConfig, flags: dict[str, Any], out: Path, n: int | None, **given: str | float | None
) -> OfflineOptions:
    for name in ("actor.model_name_or_path", "rollout.max_new_tokens"):
        if not flags[name]:
            raise ConfigError(f"openrlhf: {name} is not set, and the offline pass samples as training will. Set it.")
    limits = config.engine.options()
    return OfflineOptions.from_flags(flags, out=out, n=n or config.reference_n, **limits, **given)

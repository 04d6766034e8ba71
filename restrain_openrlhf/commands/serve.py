"""`restrain serve` runs the scoring service; `restrain agent-path` prints where the agent is."""

from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.config import host_flags
from restrain_openrlhf.errors import ConfigError


def serve(
    config: Annotated[Path, typer.Option(help="YAML file with `method:`, `reference:` and `service:`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that clients must send.", show_default="RESTRAIN_TOKEN_FILE, RESTRAIN_TOKEN"
        ),
    ] = None,
) -> None:
    """Run the scoring service: POST /v1/score for the agent, POST /get_reward for --reward.remote_url.

    /get_reward gathers single rollouts in one process. `service.group_size` in the configuration turns it on.
    """
    try:
        from restrain_openrlhf.scoring.service import server, service_config  # noqa: PLC0415 - the web stack is heavy
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The scoring service needs {error.name}, which is not installed. Install it with `pip install "
            "restrain-openrlhf[service]`."
        ) from None
    service = service_config.load_service_config(config)
    server.serve(service, service_config.load_token(token_file), host, port)


def agent_path(
    wrap: Annotated[
        Path | None,
        typer.Option(metavar="AGENT", help="Your own agent's file: check that it can draw the rollouts that vote."),
    ] = None,
) -> None:
    """Print the path of the agent file, for OpenRLHF's --train.agent_func_path.

    If that flag names your own agent (turns, tools, environments), --wrap AGENT loads it as OpenRLHF would, and prints
    the line that lets it draw the trajectories that vote.
    """
    if wrap is not None:
        from restrain_openrlhf.config.blocks import Agent  # noqa: PLC0415
        from restrain_openrlhf.hook.rollout.trajectories import load_executor  # noqa: PLC0415 - imports OpenRLHF

        agent = Agent(path=wrap)
        load_executor(agent)
        typer.echo("Write into the file that RESTRAIN_CONFIG or --restrain.config names:", err=True)
        typer.echo(f"agent: {agent.path}", err=True)
    typer.echo(host_flags.agent_path())

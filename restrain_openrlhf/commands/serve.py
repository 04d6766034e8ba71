"""`restrain serve` and `restrain agent-path`: the scoring service, and where the agent is."""

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
            f"The scoring service needs {error.name}, which is not installed. Install restrain-openrlhf[service]."
        ) from None
    service = service_config.load_service_config(config)
    server.serve(service, service_config.load_token(token_file), host, port)


def agent_path() -> None:
    """Print the path of the agent file, for OpenRLHF's --train.agent_func_path."""
    typer.echo(host_flags.agent_path())

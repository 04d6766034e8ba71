"""`restrain serve`: the reward service for an OpenRLHF deployment that exists."""

from pathlib import Path
from typing import Annotated

import typer

from restrain_openrlhf.errors import ConfigError


def serve(
    config: Annotated[Path, typer.Option(help="YAML with `method:`, `reference:` and `service:`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    store: Annotated[
        str, typer.Option(envvar="RESTRAIN_STORE", help="memory (one process), or redis://… shared by all replicas.")
    ] = "memory",
    probe_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port for /healthz, /readyz, /startupz and /metrics alone.")
    ] = None,
    reuse_port: Annotated[
        bool, typer.Option("--reuse-port", help="Share the ports with the process that this one takes over from.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that clients must send; else RESTRAIN_TOKEN.")
    ] = None,
) -> None:
    """Serve RESTRAIN as OpenRLHF's --reward.remote_url: http://HOST:PORT/get_reward."""
    try:
        from restrain_openrlhf.reward import listening, security, server, settings  # noqa: PLC0415 - the web stack is heavy
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The reward service needs {error.name}, which is not installed. Install restrain-openrlhf[serve]."
        ) from None
    address = listening.Address(host, port, probe_port, shared=reuse_port)
    server.serve(settings.load_service_config(config), address, store, security.load_token(token_file))

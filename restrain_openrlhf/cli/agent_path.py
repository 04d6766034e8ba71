"""`restrain agent-path`: where OpenRLHF finds the agent."""

import typer

from restrain_openrlhf.hook.host_flags import agent_path as path_of_agent


def agent_path() -> None:
    """Print the file for OpenRLHF's --train.agent_func_path."""
    typer.echo(path_of_agent())

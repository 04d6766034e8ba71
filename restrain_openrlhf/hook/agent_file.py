"""Where the agent lies that OpenRLHF loads by path, found without importing it."""

from importlib.util import find_spec
from pathlib import Path

from restrain_openrlhf.errors import HostError

MODULE = "restrain_openrlhf.hook.agent"


def agent_path() -> Path:
    """The file for --train.agent_func_path. Raises HostError where this package is not a folder of files."""
    spec = find_spec(MODULE)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise HostError(f"{MODULE} has no file that OpenRLHF could load. Install restrain-openrlhf from its wheel.")
    return Path(spec.origin)


def is_agent(path: str) -> bool:
    """Whether this is that file, or one like it in another place, as another node may have it."""
    given, own = Path(path), agent_path()
    return given == own or (given.is_file() and given.read_bytes() == own.read_bytes())

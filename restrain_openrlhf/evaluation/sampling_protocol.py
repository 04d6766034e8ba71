"""How many responses are drawn per problem, and how: the paper's protocol, and greedy decoding."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from restrain_openrlhf.errors import ConfigError


@dataclass(frozen=True)
class Protocol:
    """`max_new_tokens` bounds a response, in tokens; the rest are vLLM's sampling parameters."""

    name: str
    n: int
    temperature: float
    top_p: float
    max_new_tokens: int = 4096
    seed: int = 42


PAPER = Protocol("paper", n=16, temperature=0.6, top_p=0.95)
GREEDY = Protocol("greedy", n=1, temperature=0.0, top_p=1.0)
PROTOCOLS: Mapping[str, Protocol] = {entry.name: entry for entry in (PAPER, GREEDY)}


def choose_protocol(name: str, n: int | None, max_new_tokens: int, seed: int) -> Protocol:
    """The protocol with the user's n and lengths. Raises ConfigError for an unknown name, or n > 1 when greedy."""
    if name not in PROTOCOLS:
        raise ConfigError(f"--protocol {name!r}: is no protocol. Known: {', '.join(PROTOCOLS)}.")
    protocol = replace(PROTOCOLS[name], max_new_tokens=max_new_tokens, seed=seed)
    if n is None:
        return protocol
    if not protocol.temperature and n != 1:
        raise ConfigError(f"--n {n} with --protocol {name}: greedy responses are all equal. Leave --n out.")
    return replace(protocol, n=n)

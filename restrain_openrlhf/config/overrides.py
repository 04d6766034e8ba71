"""`--set KEY=VALUE` on the command line."""

from collections.abc import Iterable

import yaml

from restrain_openrlhf.errors import ConfigError


def parse_overrides(items: Iterable[str]) -> dict[str, object]:
    """Keys, dots kept, and values read as YAML; of equal keys the last counts.

    Raises ConfigError naming the item that is none.
    """
    return dict(_parse(item) for item in items)


def _parse(item: str) -> tuple[str, object]:
    key, equals, value = item.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {item!r}: give KEY=VALUE, for example kappa=2.")
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {item!r}: the value is not valid YAML ({error}).") from None

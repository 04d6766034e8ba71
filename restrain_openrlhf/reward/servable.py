"""Which methods a service that only sees finished rollouts can stand for."""

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method import Method


def refuse_unservable(method: Method) -> None:
    """Raises ConfigError for a method that draws rollouts or selects prompts: both happen in the trainer."""
    if method.rollouts is not None:
        raise ConfigError(
            f"The method {method.name!r} draws its rollouts itself (votes beyond the trained ones, trees), which a "
            "reward service cannot. Train with the in-process hook, or leave those settings out."
        )
    if method.selection is not None:
        raise ConfigError(
            f"The method {method.name!r} trains on some of the prompts only, which a reward service cannot choose. "
            "Train with the in-process hook, or give the trainer the easy prompts and the service the method ttrl."
        )

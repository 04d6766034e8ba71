"""Every method by name, as a composition of the same small parts. The only place where a method's name has a meaning.

A method of your own is a settings class, a function from settings to a composition, and `register`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from restrain_openrlhf.errors import ConfigError
from restrain_openrlhf.method.advantages import population_std, unbiased_std
from restrain_openrlhf.method.baseline_settings import (
    EttrlSettings,
    GrpoGoldSettings,
    MajoritySettings,
    SrtEasySettings,
    SrtOfflineSettings,
    TtrlSettings,
)
from restrain_openrlhf.method.beliefs import Belief, Gold, Majority, Soft, Stored, Uniform
from restrain_openrlhf.method.composition import Method
from restrain_openrlhf.method.entropy_reshaping import ClipAdvantages, ResidualEntropy
from restrain_openrlhf.method.selection import AtLeast, Easiest, Selection
from restrain_openrlhf.method.settings import SETTINGS, CommonSettings, RestrainSettings
from restrain_openrlhf.method.shaping import Shaping
from restrain_openrlhf.method.transforms import (
    PenalizeLowConsensus,
    PenalizeMissing,
    ScaleByPromptWeight,
    Transform,
    constant,
    offline,
    online,
)
from restrain_openrlhf.method.votes import exclude_missing, missing_as_label
from restrain_openrlhf.rollouts import EntropyTrees, Independent, RolloutPlan

Settings = TypeVar("Settings", bound=CommonSettings)

STDS = {"unbiased": unbiased_std, "population": population_std}
COUNTS = {"exclude": exclude_missing, "as_label": missing_as_label, "penalize": exclude_missing}
BELIEFS: dict[str, Callable[[RestrainSettings], Belief]] = {
    "gaussian": lambda settings: Soft(_shaping(settings)),
    "majority": lambda settings: Majority(share_ties=settings.ties == "split"),
    "uniform": lambda settings: Uniform(),
}
PROMPT_WEIGHTS: dict[str, Callable[[RestrainSettings], tuple[Transform, ...]]] = {
    "offline": lambda settings: (
        ScaleByPromptWeight(offline(_prompt_shaping(settings)), settings.scale_kl, needs_reference=True),
    ),
    "online": lambda settings: (ScaleByPromptWeight(online(_prompt_shaping(settings)), settings.scale_kl),),
    "none": lambda settings: (),
}
EARS: dict[str, Callable[[EttrlSettings], tuple[Transform, ...]]] = {
    "residual": lambda settings: (ResidualEntropy(),),
    "clip": lambda settings: (ClipAdvantages(settings.ear_bound),),
    "both": lambda settings: (ResidualEntropy(), ClipAdvantages(settings.ear_bound)),
    "none": lambda settings: (),
}


def restrain(settings: RestrainSettings) -> Method:
    """Soft labels, low consensus penalised, prompts weighed by the frozen model's confidence."""
    return compose(
        settings,
        BELIEFS[settings.belief](settings),
        PenalizeLowConsensus(settings.kappa, settings.delta),
        *_prompt_weight(settings),
    )


def ttrl(settings: TtrlSettings) -> Method:
    """The majority of the group is the label."""
    return compose(settings, _majority(settings), rollouts=_independent(settings))


def ettrl(settings: EttrlSettings) -> Method:
    """The majority over the leaves of entropy-forked trees is the label; advantages are reshaped by entropy."""
    rollouts = _trees(settings) if settings.etmr else _independent(settings, settings.entropy_top_k)
    return compose(settings, _majority(settings), *EARS[settings.ear](settings), rollouts=rollouts)


def srt_offline(settings: SrtOfflineSettings) -> Method:
    """The majority of the frozen model's rollouts is the label, for good."""
    return compose(settings, Stored())


def srt_easy(settings: SrtEasySettings) -> Method:
    """The majority of the group is the label, on the prompts that are easy for the frozen model."""
    easy = Easiest(settings.easy_share) if settings.easy_cutoff is None else AtLeast(settings.easy_cutoff)
    return compose(settings, _majority(settings), rollouts=_independent(settings), selection=easy)


def grpo_gold(settings: GrpoGoldSettings) -> Method:
    """The gold answer is the label."""
    return compose(settings, Gold())


METHODS: dict[str, Callable[[Any], Method]] = {
    "restrain": restrain,
    "ttrl": ttrl,
    "ettrl": ettrl,
    "srt_offline": srt_offline,
    "srt_easy": srt_easy,
    "grpo_gold": grpo_gold,
}


def build(settings: CommonSettings) -> Method:
    """The composition that the settings name."""
    return METHODS[settings.name](settings)


def register(name: str, settings: type[Settings], method: Callable[[Settings], Method]) -> None:
    """Make a method of your own known by its name: in configurations, on the command line and in the hook.

    Raises ConfigError where another method has the name.
    """
    if name in METHODS:
        raise ConfigError(f"A method named {name!r} is registered already. Choose another name for yours.")
    SETTINGS[name] = settings
    METHODS[name] = method


def compose(
    settings: CommonSettings,
    belief: Belief,
    *transforms: Transform,
    rollouts: RolloutPlan | None = None,
    selection: Selection | None = None,
) -> Method:
    """A method with the settings that all share: missing answers, standard deviation, epsilon."""
    penalties = (PenalizeMissing(settings.delta),) if settings.missing == "penalize" else ()
    return Method(
        name=settings.name,
        belief=belief,
        transforms=(*penalties, *transforms),
        count_votes=COUNTS[settings.missing],
        std=STDS[settings.std],
        eps=settings.eps,
        rollouts=rollouts,
        selection=selection,
    )


def _majority(settings: MajoritySettings) -> Majority:
    return Majority(share_ties=settings.ties == "split")


def _independent(settings: MajoritySettings, top_k: int | None = None) -> Independent | None:
    if settings.votes is None:
        return None
    return Independent(settings.votes, settings.train_on or settings.votes, top_k)


def _trees(settings: EttrlSettings) -> EntropyTrees:
    return EntropyTrees(
        trees=settings.trees,
        forks=settings.forks,
        branches=settings.branches,
        top_k=settings.entropy_top_k,
        fork_token=settings.fork_token,
        spacing=settings.fork_spacing,
    )


def _shaping(settings: RestrainSettings) -> Shaping:
    return Shaping(settings.k, settings.sigma)


def _prompt_shaping(settings: RestrainSettings) -> Shaping:
    return Shaping(settings.k, settings.sigma if settings.prompt_sigma is None else settings.prompt_sigma)


def _prompt_weight(settings: RestrainSettings) -> tuple[Transform, ...]:
    if isinstance(settings.prompt_weight, float):
        return (ScaleByPromptWeight(constant(settings.prompt_weight), settings.scale_kl),)
    return PROMPT_WEIGHTS[settings.prompt_weight](settings)

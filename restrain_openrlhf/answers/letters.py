"""Letters outside ASCII as LaTeX writes them: Greek ones, and digits above and below the line."""

import re

_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma sigma tau "
    "upsilon phi chi psi omega"
).split()
_GREEK = {chr(ord("α") + place): rf"\{name} " for place, name in enumerate(_NAMES)}
_CAPITALS = dict(zip("ΓΔΘΛΞΠΣΦΨΩ", "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(), strict=True))
_TABLE = str.maketrans(_GREEK | {letter: rf"\{name} " for letter, name in _CAPITALS.items()})
_BELOW, _ABOVE = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789"), str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RUN_BELOW, _RUN_ABOVE = re.compile("[₀-₉]+"), re.compile("[⁰¹²³⁴-⁹⁻]+")


def plain_letters(text: str) -> str:
    r"""`αx₁²` as `\alpha x_{1}^{2}`."""
    if text.isascii():
        return text
    text = _RUN_BELOW.sub(lambda run: f"_{{{run[0].translate(_BELOW)}}}", text.translate(_TABLE))
    return _RUN_ABOVE.sub(lambda run: f"^{{{run[0].translate(_ABOVE)}}}", text)

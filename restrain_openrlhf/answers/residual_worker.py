"""The process behind residual.py: reads LaTeX with latex2sympy2, answers with a key, one JSON line each."""

import json
import resource
import sys
import warnings
from typing import Any

MEMORY_BYTES = 2 << 30
POINTS = 3


def main() -> None:
    """Serve until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("ignore")
    from latex2sympy2 import latex2sympy  # noqa: PLC0415 - costs a second, here alone

    out = sys.stdout
    # latex2sympy2 prints warnings of its own.
    sys.stdout = sys.stderr
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(key_of(latex2sympy, json.loads(line))), file=out, flush=True)


def key_of(read: Any, text: str) -> str | None:
    """The same kind of key as the fast parser gives, from sympy's value at the same points."""
    try:
        expression = read(text).doit()
        return _key(expression)
    except Exception:  # noqa: BLE001 - a parser on hostile text may raise anything; the answer is then compared as text
        return None


def _key(expression: Any) -> str | None:
    from restrain_openrlhf.answers.operations import CONTEXT  # noqa: PLC0415 - after latex2sympy2
    from restrain_openrlhf.answers.value import at_point, fingerprints  # noqa: PLC0415

    symbols = sorted(expression.free_symbols, key=str)
    found = []
    for point in range(POINTS if symbols else 1):
        places = {symbol: _rational(at_point(str(symbol).strip("{}"), point)) for symbol in symbols}
        real, imaginary = expression.subs(places).evalf(60).as_real_imag()
        if not (real.is_Number and imaginary.is_Number and real.is_finite):
            return None
        found.append(CONTEXT.mpc(str(real), str(imaginary)))
    return "value " + " | ".join(fingerprints(tuple(found)))


def _rational(value: Any) -> Any:
    from sympy import Rational  # noqa: PLC0415

    return Rational(value.numerator, value.denominator)


if __name__ == "__main__":
    main()

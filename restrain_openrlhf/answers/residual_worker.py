"""The process behind residual.py: reads LaTeX with latex2sympy2 and answers with keys, one JSON line each.

A question is a text and the CPU seconds that it may take. This is the script of a WorkerProcess
(machine/processes.py). Its arguments are the folder of this package, a folder to search first for other packages,
and folders to search last.
"""

import json
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

MEMORY_BYTES = 2 << 30
POINTS = 3
_JUMPS = re.compile(r"\\(?:lfloor|lceil|floor|ceil|max|min|gcd|lcm)(?![a-zA-Z])")


def main(package: str, home: str, *folders: str) -> None:
    """Report that it is ready, or what failed, then serve until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("ignore")
    out = sys.stdout
    # latex2sympy2 prints warnings to standard output.
    sys.stdout = sys.stderr
    try:
        read = _reader(package, home, folders)
    except Exception as error:  # noqa: BLE001 - whatever an import raises is told to the process that started this one
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=out, flush=True)
        return
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        text, seconds = json.loads(line)
        # SIGPROF ends this process after so many CPU seconds, also within one operation of sympy.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        key = key_of(read, text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(key), file=out, flush=True)


def _reader(package: str, home: str, folders: tuple[str, ...]) -> Callable[[str], Any]:
    """latex2sympy2's parser. All packages but ours are searched in `home` first, then on Python's path.

    Once our package is imported, its modules are found without its folder on the path.
    """
    sys.path.insert(0, package)
    import_module("restrain_openrlhf.errors")
    sys.path.remove(package)
    sys.path[:] = [home, *sys.path, *folders]
    read: Callable[[str], Any] = import_module("latex2sympy2").latex2sympy
    return read


def key_of(read: Any, text: str) -> str | None:
    """A key as the fast parser would give it, from sympy's values at the same points; None for other text.

    A floor, a maximum or a greatest divisor with a variable has none: its values at a few points are those of others.
    """
    try:
        expression = read(text).doit()
        return None if expression.free_symbols and _JUMPS.search(text) else _key(expression)
    except Exception:  # noqa: BLE001 - a parser on hostile text may raise anything; the answer is then compared as text
        return None


def _key(expression: Any) -> str | None:
    from sympy import Rational  # noqa: PLC0415

    from restrain_openrlhf.answers.value import CONTEXT, at_point, value_key  # noqa: PLC0415 - after latex2sympy2

    symbols = sorted(expression.free_symbols, key=str)
    found = []
    for point in range(POINTS if symbols else 1):
        values = [at_point(str(symbol).strip("{}"), point) for symbol in symbols]
        places = {symbol: Rational(*value.as_integer_ratio()) for symbol, value in zip(symbols, values, strict=True)}
        real, imaginary = expression.subs(places).evalf(60).as_real_imag()
        if not (real.is_Number and imaginary.is_Number and real.is_finite):
            return None
        found.append(CONTEXT.mpc(str(real), str(imaginary)))
    return value_key(tuple(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

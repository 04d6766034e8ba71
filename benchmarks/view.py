"""How quick the page of kept rollouts is with 10,000 groups of 8 responses: written, read, filtered, scrolled, opened.

In Debian's Chromium, headless, by the clock: medians of REPEATS, with the worst in brackets. A filter or a scroll is
timed until its rows are laid out.
"""

import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from restrain_openrlhf.view.export import MIB, export
from restrain_openrlhf.view.material import Material, material
from restrain_openrlhf.view.server import application
from restrain_openrlhf.view.source import ViewedRun
from tests.view.browser import Watched, chromium, missing, watched
from tests.view.runs import large_run

GROUPS = 10_000
REPEATS = 15
# Each action, until the rows are laid out, in milliseconds.
TIMED = """() => {
  const from = performance.now();
  const turned = (field, value) => {
    form[field].value = form[field].value ? "" : value;
    form.dispatchEvent(new Event("input"));
  };
  %s;
  document.getElementById("rows").offsetHeight;
  return performance.now() - from;
}"""
ACTIONS = {
    "filter: penalised": "form.penalized.click()",
    "filter: text in the prompt": "turned('text', '37')",
    "order: smallest majority": "turned('order', 'smallest')",
    "scroll to another place": "list.box.scrollTop = Math.random() * list.box.scrollHeight; list.draw()",
}
OPEN = """async () => {
  const from = performance.now();
  document.getElementById("group").replaceChildren();
  await open(state.groups[Math.floor(Math.random() * state.groups.length)]);
  document.getElementById("group").offsetHeight;
  return performance.now() - from;
}"""


def main() -> None:
    """Measure and print."""
    if why := missing():
        sys.exit(why)
    console = Console(soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        run = large_run(Path(folder) / "run", GROUPS)
        found, out = material(run, None), Path(folder) / "view.html"
        seconds = clocked(lambda: export(found, out, 100))
        size = sum(path.stat().st_size for path in (run / "rollouts").iterdir()) / MIB
        console.print(
            f"{GROUPS:,} groups, {size:.1f} MiB; exported in {seconds:.1f} s, {out.stat().st_size / MIB:.1f} MiB"
        )
        with_server(found, lambda address: report(console, "served", watched(browser), address))
        report(console, "exported", watched(browser), out.as_uri())


def clocked(action: Callable[[], object]) -> float:
    """Seconds it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def with_server(found: Material, use: Callable[[str], None]) -> None:
    """Serve while `use` runs; the first load reads all files."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(ViewedRun(found)), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    use(f"http://127.0.0.1:{listening.getsockname()[1]}/")
    server.should_exit = True
    thread.join()


def report(console: Console, name: str, made: Watched, address: str) -> None:
    """Load the page, then each action again and again."""
    console.print(f"{name}: all groups read after {clocked(lambda: made.open(address)):.2f} s")
    made.page.goto("about:blank")
    console.print(f"{name}: loaded again after {clocked(lambda: made.open(address)):.2f} s")
    for action, script in ACTIONS.items():
        console.print(f"{name}: {action}: {summary([made.page.evaluate(TIMED % script) for _ in range(REPEATS)])}")
    console.print(f"{name}: open a group: {summary([made.page.evaluate(OPEN) for _ in range(REPEATS)])}")


def summary(milliseconds: Sequence[float]) -> str:
    """The median, and the worst."""
    return f"{statistics.median(milliseconds):.1f} ms [{max(milliseconds):.1f}]"


if __name__ == "__main__":
    main()

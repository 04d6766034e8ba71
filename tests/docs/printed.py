"""What a page prints for its reader: commands to type, files to save, and the output that they make."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

# What is indented after a blank line is typed, and so is a fence of bash; a fence of text is output. A fence of
# another kind is a file's content: it is passed over with what is indented in it.
PART = re.compile(
    r"^```text\n(?P<output>.*?)^```$|^```bash\n(?P<bash>.*?)^```$|^```.*?^```$|"
    r"(?<=\n\n)(?P<indented>(?:^ {4}[^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)
YAML = re.compile(r"[Ss]ave this as `([\w.]+)`|a configuration, `([\w.]+)`|A team's `([\w.]+)`")


def fenced(page: str, language: str) -> list[str]:
    """The contents of the page's files of a language, such as yaml or python."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def section(page: str, heading: str) -> str:
    """What stands below a heading of the second level, up to the next."""
    return re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[1]


def files_of(page: str) -> Iterator[tuple[str, str]]:
    """What a page asks its reader to save, by name."""
    for saved in YAML.finditer(page):
        name = next(filter(None, saved.groups()))
        yield name, re.search(r"```\w+\n(.*?)```", page[saved.end() :], re.DOTALL)[1]


@dataclass(frozen=True)
class Typed:
    """A command of a page, and the output that the page shows under it: nothing where it shows none."""

    command: str
    output: str = ""

    @property
    def shown(self) -> list[str]:
        """Those parts of the output that a page shows in one piece: `...` stands where it leaves lines out."""
        return [piece for piece in re.split(r"^\.\.\.$", self.output, flags=re.MULTILINE) if piece.strip()]


def typed(page: str) -> list[Typed]:
    """The commands of a page with the outputs that follow them."""
    found: list[Typed] = []
    for part in PART.finditer(page):
        if part["output"] is not None and found:
            found[-1] = Typed(found[-1].command, found[-1].output + "...\n" + part["output"])
        elif text := part["bash"] or part["indented"]:
            found += map(Typed, commands(dedent(text)))
    return found


def commands(block: str) -> Iterator[str]:
    """The commands of a block, each with the lines on which it continues and the text that it is given (`<<'YAML'`)."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    while lines:
        line = lines.pop(0)
        if word := re.search(r"<<'(\w+)'", line):
            until = lines.index(word[1])
            line = "\n".join([line, *lines[: until + 1]])
            del lines[: until + 1]
        yield line


def shape(output: str) -> str:
    """An output without its numbers and line ends, which differ from one machine and one terminal to the next."""
    return re.sub(r"\d[\d.:]*", "N", " ".join(output.split()))

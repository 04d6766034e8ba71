"""Writes qwen25_math.json beside it: what Qwen2.5-Math's own code makes of a few rows, for a test of the templates.

`python make_qwen25_math.py CHECKOUT ROWS.json`, CHECKOUT being Qwen2.5-Math's `evaluation` folder with what its
parser.py imports installed, and ROWS.json benchmark → rows in the shape of its `data/NAME/test.jsonl`.
"""

import copy
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
# Their name for MATH-500 is `math`; `boxed` here is `mathstral` there.
DATA_NAMES = {"math500": "math"}
PROMPT_TYPES = {"boxed": "mathstral"}
TEMPLATES = ("qwen25-math-cot", "qwen-boxed", "cot", "direct", "boxed")


def _wanted(rows: dict[str, list[dict]]) -> Iterator[tuple[str, str, int]]:
    """All templates for a benchmark's first row; the other rows by the first template alone."""
    for name, of_name in rows.items():
        yield from ((name, template, 0) for template in TEMPLATES)
        yield from ((name, TEMPLATES[0], place) for place in range(1, len(of_name)))


def main(checkout: str, rows: dict[str, list[dict]]) -> None:
    """Write the golden file."""
    sys.path.insert(0, checkout)
    from parser import parse_ground_truth, parse_question
    from utils import construct_prompt

    prompts = []
    for name, template, place in _wanted(rows):
        data_name, prompt_type = DATA_NAMES.get(name, name), PROMPT_TYPES.get(template, template)
        example = copy.deepcopy(rows[name][place])
        example["question"] = parse_question(example, data_name)
        example["gt_ans"] = parse_ground_truth(rows[name][place], data_name)[1]
        asked = Namespace(adapt_few_shot=False, prompt_type=prompt_type, num_shots=0)
        text = construct_prompt(example, data_name, asked)
        prompts.append({"benchmark": name, "template": template, "place": place, "text": text})
    golden = {"rows": rows, "prompts": prompts}
    (HERE / "qwen25_math.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))

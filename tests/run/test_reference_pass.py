"""A configuration's own offline pass: what it samples is what its training will ask for."""

import pytest

pytest.importorskip("openrlhf", reason="needs the installed OpenRLHF")
pytestmark = pytest.mark.host

from restrain_openrlhf.config.yaml_file import load_run_config  # noqa: E402
from restrain_openrlhf.data.jsonl import dump  # noqa: E402
from restrain_openrlhf.demo.run import MODEL  # noqa: E402
from restrain_openrlhf.demo.task import training_problems, write_prompts  # noqa: E402
from restrain_openrlhf.hook.host_flags import parse, to_arguments  # noqa: E402
from restrain_openrlhf.hook.preflight import check_run  # noqa: E402
from restrain_openrlhf.reference.artifact import provenance_path  # noqa: E402
from restrain_openrlhf.reference.vote import reference_row  # noqa: E402
from restrain_openrlhf.run.reference_pass import offline_pass  # noqa: E402
from tests.conftest import ROOT  # noqa: E402


def test_training_takes_the_reference_that_its_own_configuration_made(tmp_path):
    write_prompts(tmp_path / "p.jsonl", training_problems(4))
    config = load_run_config(
        ROOT / "configs" / "cpu" / "demo.yaml",
        {
            "run_dir": str(tmp_path / "run"),
            "reference": str(tmp_path / "ref.jsonl"),
            "openrlhf.actor.model_name_or_path": str(MODEL),
            "openrlhf.data.prompt_dataset": str(tmp_path / "p.jsonl"),
            "openrlhf.data.input_template": "Q: {}",
        },
    )
    job = offline_pass(config, n=2)
    assert job.prompts[0].text.startswith("Q: ")
    assert (job.sampling.n, job.sampling.max_new_tokens, job.sampling.max_len) == (2, 14, 32)
    rows = [reference_row(prompt, ["1", "2"]).model_dump(mode="json") for prompt in job.prompts]
    (tmp_path / "ref.jsonl").write_text("".join(map(dump, rows)))
    provenance_path(tmp_path / "ref.jsonl").write_text(job.provenance.model_dump_json())
    from restrain_openrlhf.config.host_defaults import host_flags

    check_run(config, parse(to_arguments(host_flags(config))))

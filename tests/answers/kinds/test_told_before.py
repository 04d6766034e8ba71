"""What this machine or a row lacks is told before hours of work, by everything that works for hours."""

import json
from typing import ClassVar, Literal

import pytest

from restrain_openrlhf.answers import KINDS, AnswerKind, parse_kind, register
from restrain_openrlhf.commands.premise.frozen import from_rollouts
from restrain_openrlhf.config.host_flags import flags_of
from restrain_openrlhf.config.yaml_file import HookConfig, RunConfig
from restrain_openrlhf.data.demo_tasks.tasks import ADDITION
from restrain_openrlhf.errors import ConfigError, DataError
from restrain_openrlhf.evaluation.job import Evaluation, Request
from restrain_openrlhf.machine.sandbox import pool
from restrain_openrlhf.reference.offline_pass import OfflineOptions, OfflinePass
from restrain_openrlhf.reference.prompts import PromptSource
from restrain_openrlhf.reference.sampling_pass import WHOLE
from restrain_openrlhf.scoring import GroupScorer
from tests.command_line import restrain


class Pressed(AnswerKind):
    """Needs a press on the machine, and the sign of each row."""

    version: ClassVar[str] = "1"
    reads: ClassVar[str] = "Everything is the answer."
    columns: ClassVar[frozenset[str]] = frozenset({"sign"})

    name: Literal["pressed"] = "pressed"
    press: bool = True

    def check_machine(self):
        if not self.press:
            raise ConfigError("there is no press")

    def extract(self, response, row):
        if "sign" not in row:
            raise DataError("the row has no sign")
        return response or None

    def key(self, answer, row):
        return answer


@pytest.fixture(autouse=True)
def pressed():
    yield register(Pressed)
    del KINDS["pressed"]


LACKING = [
    pytest.param({"press": False}, {"sign": "-"}, ConfigError, "there is no press", id="machine"),
    pytest.param({}, {}, DataError, "the row has no sign", id="row"),
]


def train(kind, rows, tmp_path, flags=(), **given):
    pytest.importorskip("openrlhf", reason="needs the training stack (make install)")
    from restrain_openrlhf.hook.launch.preflight import check_inputs

    own = {
        "actor.model_name_or_path": str(ADDITION.model),
        "data.prompt_dataset": str(rows),
        "data.input_key": "problem",
        "rollout.n_samples_per_prompt": 4,
        "rollout.batch_size": 2,
        "train.batch_size": 8,
        "rollout.max_new_tokens": 4,
        "data.max_len": 32,
        "algo.advantage.estimator": "group_norm",
        "algo.kl.init_coef": 0,
        "vllm.num_engines": 1,
        "ds.attn_implementation": "sdpa",
        **dict(flags),
    }
    config = RunConfig(method={"name": "ttrl"}, answers=kind, run_dir=tmp_path / "run", openrlhf=own, **given)
    check_inputs(config, flags_of(config))


def agent_alone(kind, rows, _tmp_path):
    config = HookConfig(method={"name": "ttrl"}, answers=kind, answer_rows=rows)
    GroupScorer.by(config.method, config.reference, config.answers, config.answer_rows)


GATHERS = {"group_size": 4, "end_of_text": []}


def service(kind, rows, _tmp_path):
    pytest.importorskip("uvicorn", reason="needs restrain-openrlhf[serve]")
    from restrain_openrlhf.scoring.service.server import Service
    from restrain_openrlhf.scoring.service.service_config import ServiceConfig

    Service(ServiceConfig(method={"name": "ttrl"}, answers=kind, answer_rows=rows, service=GATHERS), None)


def offline_pass(kind, rows, tmp_path):
    word = json.dumps(kind)
    options = OfflineOptions.from_flags(
        {}, model=str(ADDITION.model), prompts=str(rows), out=tmp_path / "ref.jsonl", answers=word, max_new_tokens=4
    )
    OfflinePass.prepare(options, PromptSource(str(rows), "problem"), WHOLE)


def evaluation(kind, rows, tmp_path):
    kind = parse_kind(kind)
    asked = {"benchmarks": (str(rows),), "answers": kind, "max_new_tokens": 4}
    request = Request(model=str(ADDITION.model), out=tmp_path / "out", **asked)
    assert Evaluation(request).passes


def premise(kind, rows, _tmp_path):
    from_rollouts(rows, kind=parse_kind(kind))


PLACES = (train, agent_alone, service, offline_pass, evaluation, premise)


@pytest.mark.parametrize(("settings", "columns", "error", "said"), LACKING)
@pytest.mark.parametrize("place", PLACES, ids=[place.__name__ for place in PLACES])
def test_everything_that_works_for_hours_tells_it_first(
    place, settings, columns, error, said, tmp_path, write_jsonl, monkeypatch
):
    """The second row alone lacks it, and no response is read."""
    monkeypatch.setattr(Pressed, "classes", lambda *_: pytest.fail("a group was scored"))
    whole = {"answer": "1", "responses": ["a", "b"], "sign": "-"}
    bare = {key: value for key, value in whole.items() if key != "sign"}
    rows = write_jsonl(
        "rows.jsonl", [{"id": "1", "problem": "one", **whole}, {"id": "2", "problem": "two", **bare, **columns}]
    )
    with pytest.raises(error, match=said):
        place({"name": "pressed", **settings}, rows, tmp_path)


def test_score_tells_it_before_it_writes(tmp_path, write_jsonl):
    rows = write_jsonl("rows.jsonl", [{"id": "1", "problem": "one", "responses": ["a"], "sign": "-"}])
    words = ("--method", "ttrl", "--answers", "{name: pressed, press: false}", "--out", tmp_path / "scores.jsonl")
    done = restrain("score", rows, *words)
    assert (done.returncode, "there is no press" in done.stderr) == (2, True)
    assert not (tmp_path / "scores.jsonl").exists()


@pytest.fixture
def no_programs(monkeypatch):
    """A machine without bubblewrap; what other tests started with it has another pool."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(pool, "_pool", lambda confinement, _process: pool._Pool(confinement))


@pytest.mark.parametrize(
    ("block", "row", "error", "said"),
    [
        ({"name": "code"}, {}, ConfigError, "apt-get install bubblewrap"),
        ({"name": "code", "sandbox": "container"}, {"examples": 3}, DataError, "'examples'"),
        ({"name": "sql", "databases": "not/here"}, {}, ConfigError, "answers.databases: not/here is not a folder"),
        ({"name": "sql"}, {"database": "not_here.sqlite"}, DataError, "no such SQLite file"),
        ({"name": "sql"}, {}, DataError, "it has none"),
        ({"name": "number", "unit": "yards of ale"}, {}, DataError, "is not a unit that Pint knows"),
        ({"name": "number"}, {"unit": "yards of ale"}, DataError, "is not a unit that Pint knows"),
        ({"name": "choice"}, {"options": []}, DataError, "no list of options"),
        ({"name": "text"}, {"aliases": 3}, DataError, "'aliases'"),
        ({"name": "embedding", "model": "./not_here", "threshold": 0.5}, {}, ConfigError, r"Check answers\.model"),
        ({"name": "embedding", "model": "docs", "threshold": 0.5}, {}, ConfigError, r"Check answers\.model"),
        ({"name": "judge", "callable": "not_here:judge"}, {}, ConfigError, "cannot be imported"),
        ({"name": "mixed"}, {"answers": "code"}, ConfigError, "install bubblewrap"),
        ({"name": "mixed"}, {"answers": "sql"}, DataError, "it has none"),
        ({"name": "mixed"}, {"answers": "sequel"}, DataError, "'sequel' in its column"),
        ({"name": "mixed", "kinds": {"code": {}}}, {}, ConfigError, "install bubblewrap"),
    ],
)
@pytest.mark.usefixtures("no_programs")
def test_each_kind_says_what_it_lacks(block, row, error, said):
    for name, package in {"number": "pint", "embedding": "transformers"}.items():
        if block["name"] == name:
            pytest.importorskip(package, reason=f"needs {package}, of an extra")
    with pytest.raises(error, match=said):
        parse_kind(block).check([{"problem": "one", **row}])


@pytest.mark.parametrize(
    ("block", "row"),
    [
        ({"name": "code", "sandbox": "container"}, {"entry_point": "f", "examples": ["f(1)"]}),
        ({"name": "sql"}, {"schema": "CREATE TABLE a (b INT)"}),
        ({"name": "text"}, {"aliases": ["one", 1]}),
        ({"name": "judge", "callable": "builtins:len"}, {}),
        ({"name": "mixed", "kinds": {"code": {"sandbox": "container"}}}, {"answers": "choice", "options": ["a", "b"]}),
        ({"name": "math"}, {}),
    ],
)
def test_what_is_there_is_not_refused(block, row):
    parse_kind(block).check([{"problem": "one", **row}])

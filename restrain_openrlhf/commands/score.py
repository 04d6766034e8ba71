"""`restrain score`, `serve` and `agent-path`: votes and advantages for rollouts that other programs draw."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import track

from restrain_openrlhf.answers import MATHEMATICS, AnswerKind, GroupAnswers
from restrain_openrlhf.answers.kind import PROBLEM
from restrain_openrlhf.answers.shown import Responses
from restrain_openrlhf.answers.votes import MissingSoFar
from restrain_openrlhf.commands.options import AnswersOption, MethodKeys, split_answers, to_file
from restrain_openrlhf.config import host_flags
from restrain_openrlhf.config.command_line import parse_overrides
from restrain_openrlhf.data.jsonl import write_rows
from restrain_openrlhf.errors import ConfigError, RestrainError
from restrain_openrlhf.evaluation.grade import RolloutsRow, placed_rollouts
from restrain_openrlhf.method import Method, build, parse_settings
from restrain_openrlhf.reference import Reference, load_reference
from restrain_openrlhf.reference.artifact import refuse_other_kind
from restrain_openrlhf.scoring import score_group


class ScoreRow(BaseModel, frozen=True):
    """The score of a row. Lists per rollout have n entries, lists per label have m.

    Advantages are given for the rollouts that are trained on: all of them, or the first ones of a vote.
    """

    id: str | int
    answers: list[str | None]
    classes: list[int | None]
    counts: list[int]
    majority: str | None
    majority_count: int
    penalized: float
    label_weights: list[float]
    prompt_weight: float
    advantage_pos: list[float]
    advantage_neg: list[float]


def score(
    rollouts: Annotated[
        Path,
        typer.Argument(
            metavar="ROLLOUTS",
            help=(
                "Rows {id, problem, responses, answer?, truncated?} (JSONL, JSON, Parquet; /dev/stdin for JSONL). A "
                "truncated response has no answer."
            ),
        ),
    ],
    out: Annotated[Path, to_file("Output file (JSONL): one row per prompt, in the same order.")],
    method: Annotated[str, typer.Option(help="Name of the method.")] = "restrain",
    overrides: MethodKeys = None,
    answers: AnswersOption = None,
    reference: Annotated[Path | None, typer.Option(help="Reference file of the offline pass, for u_x.")] = None,
) -> None:
    """Score rollouts as training does: classes, votes, label weights, and the advantage pair of each rollout.

    Advantages include the prompt weight u_x. Without --reference and --set prompt_weight=... it is 1 here.
    """
    given, named = split_answers(parse_overrides(overrides or [], example="eps=1e-6"), answers)
    kind, chosen = named or MATHEMATICS, choose_method(method, given, reference is not None)
    artifact = load_reference(reference) if reference else None
    if artifact is not None:
        refuse_other_kind(artifact, kind)
    if out.resolve() in [path.resolve() for path in (rollouts, reference) if path is not None]:
        raise ConfigError(f"--out {out}: is an input file. Name another.")
    kind.check()
    console, missing = Console(stderr=True), MissingSoFar()
    placed = track(placed_rollouts(rollouts), "scoring", console=console, disable=not console.is_terminal)
    write_rows(out, _scored(rollouts, placed, missing, lambda row: score_row(row, chosen, artifact, kind)))
    useless = chosen.why_useless(missing.largest) if missing.largest else None
    for reason in (useless, missing.warning("the file's rollouts", kind)):
        if reason:
            console.print(f"warning: {reason}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"scores: {out}", markup=False, highlight=False, soft_wrap=True)


def choose_method(name: str, given: Mapping[str, object], has_reference: bool) -> Method:
    """The method, with u_x = 1 where it needs a reference and there is none; that is said on stderr.

    Raises ConfigError if the settings contain `name`.
    """
    if "name" in given:
        raise ConfigError(f"--set name={given['name']}: give the method as --method {given['name']}.")
    settings = parse_settings({"name": name, **given})
    method = build(settings)
    is_set = "prompt_weight" in given or "prompt_weight" not in type(settings).model_fields
    if is_set or has_reference or not method.needs_reference:
        return method
    note = "note: no --reference and no --set prompt_weight=..., so u_x is not applied: u_x is 1 for every prompt."
    Console(stderr=True, soft_wrap=True).print(note)
    return build(parse_settings({"name": name, **given, "prompt_weight": 1.0}))


def _scored(
    path: Path, rows: Iterable[tuple[str, RolloutsRow]], missing: MissingSoFar, one: Callable[[RolloutsRow], ScoreRow]
) -> Iterator[ScoreRow]:
    """Each row's score. Errors name the row's place; rollouts without a class are counted in `missing`."""
    for place, row in rows:
        try:
            score = one(row)
        except RestrainError as error:
            raise type(error)(f"{path}, {place}: {error}") from None
        cut, known = [each.truncated for each in row.rollouts()], {PROBLEM: row.problem, **(row.model_extra or {})}
        missing.add(Responses.of(row.responses, cut, known), score.classes)
        yield score


def score_row(
    row: RolloutsRow, method: Method, reference: Reference | None = None, kind: AnswerKind = MATHEMATICS
) -> ScoreRow:
    """Score one row, which has responses. Raises DataError if it lacks the gold that the method reads."""
    own = row.row(kind)
    answers = kind.voted_answers(row.responses, [each.truncated for each in row.rollouts()], own)
    group = GroupAnswers.of(kind, answers, own)
    found = reference.by_problem(row.problem, own) if reference else None
    result = score_group(method, group, found, kind.gold_in(row.answer), row.problem, row.entropies, kind, own)
    return ScoreRow(
        id=row.id,
        answers=list(group.answers),
        classes=list(result.votes.classes),
        counts=list(result.votes.counts),
        majority=group.majority,
        majority_count=result.votes.majority_count,
        penalized=result.penalized,
        label_weights=result.label_weights.tolist(),
        prompt_weight=result.prompt_weight,
        advantage_pos=result.pair.positive.tolist(),
        advantage_neg=result.pair.negative.tolist(),
    )


def serve(
    config: Annotated[Path, typer.Option(help="YAML file with `method:`, `reference:` and `service:`.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients must send.", show_default="RESTRAIN_TOKEN"),
    ] = None,
) -> None:
    """Run the scoring service, for OpenRLHF's --reward.remote_url: it gathers single rollouts into groups."""
    try:
        from restrain_openrlhf.scoring.service import server, service_config  # noqa: PLC0415 - the web stack is heavy
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"The scoring service needs {error.name}, which is not installed. Install it with `pip install "
            "restrain-openrlhf[service]`."
        ) from None
    service = service_config.load_service_config(config)
    server.serve(service, service_config.load_token(token_file), host, port)


def agent_path(
    wrap: Annotated[
        Path | None,
        typer.Option(metavar="AGENT", help="Your own agent's file: check that it can draw the rollouts that vote."),
    ] = None,
) -> None:
    """Print the path of the agent file, for OpenRLHF's --train.agent_func_path.

    If that flag names your own agent (turns, tools, environments), --wrap AGENT loads it as OpenRLHF would, and prints
    the line that lets it draw the trajectories that vote.
    """
    if wrap is not None:
        from restrain_openrlhf.config.yaml_file import Agent  # noqa: PLC0415
        from restrain_openrlhf.hook.rollout.trajectories import load_executor  # noqa: PLC0415 - imports OpenRLHF

        agent = Agent(path=wrap)
        load_executor(agent)
        typer.echo("Write into the file that RESTRAIN_CONFIG or --restrain.config names:", err=True)
        typer.echo(f"agent: {agent.path}", err=True)
    typer.echo(host_flags.agent_path())

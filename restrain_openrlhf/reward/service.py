"""The HTTP application: OpenRLHF's remote reward, whole groups, probes and metrics."""

from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBasic, HTTPBearer
from starlette.exceptions import HTTPException

from restrain_openrlhf.errors import RestrainError
from restrain_openrlhf.reward import protocol
from restrain_openrlhf.reward.front import Front
from restrain_openrlhf.reward.judge import Judge
from restrain_openrlhf.reward.limits import Refusal
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.probes import State, add_probes
from restrain_openrlhf.reward.settings import Limits

PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": protocol.Problem, "description": "The body is not JSON."},
    401: {"model": protocol.Problem, "description": "The token is missing or wrong."},
    408: {"model": protocol.Problem, "description": "The body came too slowly."},
    409: {
        "model": protocol.Problem,
        "description": "Well formed, but it cannot be scored; or, with Retry-After, not yet.",
    },
    413: {"model": protocol.Problem, "description": "The body, or a count in it, is too large."},
    422: {"model": protocol.Problem, "description": "The body is not what this document describes."},
    500: {"model": protocol.Problem, "description": "A fault of the service."},
    503: {"model": protocol.Problem, "description": "Full, or stopping: ask again."},
}


def application(front: Front, judge: Judge, metrics: Metrics, limits: Limits, state: State, token: bool) -> FastAPI:
    """The routes; limits, admission and the token are around it (server.py)."""
    schemes = [Depends(HTTPBearer(auto_error=False)), Depends(HTTPBasic(auto_error=False))] if token else []
    app = FastAPI(
        title="RESTRAIN reward service",
        version=version("restrain-openrlhf"),
        description="Gathers each prompt's rollouts, scores the group, and answers all its requests together.",
        redoc_url=None,
    )
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RestrainError, _cannot)
    _add_rewards(app, front, judge, limits, schemes)
    add_probes(app, metrics, state)
    return app


def _add_rewards(app: FastAPI, front: Front, judge: Judge, limits: Limits, schemes: list[Any]) -> None:
    schema = {"application/json": {"schema": protocol.RewardRequest.model_json_schema()}}

    @app.post(
        "/get_reward",
        response_model=protocol.RewardReply,
        responses=PROBLEMS,
        dependencies=schemes,
        openapi_extra={"requestBody": {"content": schema, "required": True}},
    )
    async def get_reward(request: Request) -> Response:
        """One rollout, as OpenRLHF sends it. Answered when its group is scored; at once if it has a label."""
        return await front.serve(request)

    @app.post("/v1/score", response_model=protocol.ScoreReply, responses=PROBLEMS, dependencies=schemes)
    async def score(body: protocol.ScoreRequest) -> protocol.ScoreReply:
        """Whole groups in one call."""
        return await score_groups(body, judge, limits)


async def score_groups(body: protocol.ScoreRequest, judge: Judge, limits: Limits) -> protocol.ScoreReply:
    """Score each group by itself. Raises Refusal where there are too many, RestrainError where one cannot be scored."""
    if len(body.groups) > limits.groups:
        raise Refusal(413, f"{len(body.groups)} groups in one call; at most {limits.groups} (service.limits.groups).")
    for group in body.groups:
        if len(group.responses) > limits.responses:
            raise Refusal(413, f"{len(group.responses)} responses in one group; at most {limits.responses}.")
    return protocol.ScoreReply(groups=[await _score_group(group, judge) for group in body.groups])


async def _score_group(group: protocol.GroupRequest, judge: Judge) -> protocol.GroupReply:
    answers, score = await judge.score_responses(group.prompt, group.responses, group.gold)
    return protocol.GroupReply(
        answers=answers,
        classes=list(score.votes.classes),
        majority_count=score.votes.majority_count,
        penalized=score.penalized,
        rewards=score.rewards.tolist(),
        advantage_pos=score.pair.positive.tolist(),
        advantage_neg=score.pair.negative.tolist(),
        prompt_weight=score.prompt_weight,
        kl_weight=score.kl_weight,
    )


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    """Where and what is wrong; never the input itself."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    status = 400 if first["type"] == "json_invalid" else 422
    return JSONResponse({"detail": f"{where}: {first['msg']}"[:300]}, status_code=status)


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code, headers=error.headers)


async def _cannot(_request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=409)

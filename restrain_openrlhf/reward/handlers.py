"""The HTTP application: whole groups, OpenRLHF's remote reward, probes and metrics."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from prometheus_client import generate_latest
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from restrain_openrlhf.reward import protocol
from restrain_openrlhf.reward.get_reward import GetReward
from restrain_openrlhf.reward.requests import RefusedError, read_body, refused
from restrain_openrlhf.reward.scorer_worker import ScorerWorker
from restrain_openrlhf.reward.security import is_allowed
from restrain_openrlhf.reward.settings import ServiceConfig
from restrain_openrlhf.reward.whole_group import score_whole_group

PROBLEMS = (400, 401, 404, 408, 409, 413, 422, 500, 503)
SCHEMAS = "#/components/schemas/{model}"


@dataclass
class Service:
    """All parts of the process. `get_reward` is None where the configuration has no group_size."""

    config: ServiceConfig
    worker: ScorerWorker
    get_reward: GetReward | None
    token: str | None
    pending: int = 0
    draining: bool = False

    async def answer(self, request: Request, serve: Callable[[Request], Awaitable[BaseModel]]) -> Response:
        """The reply, counted. What goes wrong is a reply, too."""
        since, path, metrics, self.pending = (
            time.perf_counter(),
            request.url.path,
            self.worker.metrics,
            self.pending + 1,
        )
        try:
            self._refuse_strangers_and_crowds(request)
            response = Response((await serve(request)).model_dump_json(), media_type="application/json")
        except Exception as error:  # noqa: BLE001 - the client gets no stack trace, and one bad request ends no other
            refusal = refused(error)
            response = JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)
        finally:
            self.pending -= 1
        metrics.requests.labels(path, str(response.status_code)).inc()
        metrics.reply_seconds.labels(path).observe(time.perf_counter() - since)
        return response

    def _refuse_strangers_and_crowds(self, request: Request) -> None:
        most = self.config.service.limits.pending
        if self.token is not None and not is_allowed(request.headers.get("authorization", ""), self.token):
            refusal = RefusedError(401, "Send the token as a bearer token, or as http://user:TOKEN@host in the URL.")
            refusal.headers["WWW-Authenticate"] = 'Bearer realm="restrain", Basic realm="restrain"'
            raise refusal
        if self.pending > most:
            raise RefusedError(503, f"{most} requests are pending already (service.limits.pending).", again=True)

    async def reward(self, request: Request) -> protocol.RewardReply:
        """One rollout's reward. Raises a RestrainError where there is none."""
        if self.get_reward is None:
            detail = "This service scores whole groups (POST /v1/score). Set service.group_size to turn /get_reward on."
            raise RefusedError(404, detail)
        return await self.get_reward.serve(request)

    async def score(self, request: Request) -> protocol.ScoreReply:
        """Each group's score, in order. Raises a RestrainError where one has none."""
        body = await read_body(request, protocol.ScoreRequest, self.config.service)
        counts = {"groups": len(body.groups), "responses": max(len(group.responses) for group in body.groups)}
        for name, count in counts.items():
            most = getattr(self.config.service.limits, name)
            if count > most:
                raise RefusedError(413, f"{count} {name}; at most {most} (service.limits.{name}).")
        self._refuse_other_method(body.method)
        return protocol.ScoreReply(groups=await asyncio.gather(*map(self._score_group, body.groups)))

    async def _score_group(self, group: protocol.GroupRequest) -> protocol.GroupReply:
        reply = await self.worker.score(partial(score_whole_group, self.worker.scorer, group))
        for response, answer in zip(group.responses, reply.answers, strict=True):
            self.worker.metrics.answered(answer, not response.finished)
        return reply

    def _refuse_other_method(self, given: dict[str, Any] | None) -> None:
        # As JSON has it, which knows no infinity.
        own = from_json(to_json(self.config.method.model_dump(mode="json"), inf_nan_mode="null"))
        theirs = own if given is None else given
        for key in sorted({*own, *theirs}):
            if theirs.get(key) != own.get(key):
                detail = f"method.{key} is {theirs.get(key)!r} in the request and {own.get(key)!r} in the service."
                raise RefusedError(409, detail)


def application(service: Service) -> FastAPI:
    """The routes."""
    about = "Scores groups of rollouts; gathers them first, where they come one by one."
    app = FastAPI(title="RESTRAIN", version=version("restrain-openrlhf"), description=about, redoc_url=None)

    @app.post("/v1/score", response_model=protocol.ScoreReply, **_documented(protocol.ScoreRequest))
    async def score(request: Request) -> Response:
        """Whole groups in one call."""
        return await service.answer(request, service.score)

    @app.post("/get_reward", response_model=protocol.RewardReply, **_documented(protocol.RewardRequest))
    async def get_reward(request: Request) -> Response:
        """One rollout, as OpenRLHF sends it. Answered when its group is scored; at once if it has a label."""
        return await service.answer(request, service.reward)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Liveness: the loop answers."""
        return {"status": "alive"}

    @app.get("/readyz", responses={503: {"description": "Draining."}})
    async def readyz() -> JSONResponse:
        """Readiness: not draining."""
        status, code = ("draining", 503) if service.draining else ("ready", 200)
        return JSONResponse({"status": status}, status_code=code)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Prometheus."""
        return Response(generate_latest(service.worker.metrics.registry), media_type="text/plain; version=0.0.4")

    # What bodies refer to, and the token: the framework knows neither, because we read both ourselves.
    components = app.openapi()["components"]
    components["schemas"] |= protocol.ScoreRequest.model_json_schema(ref_template=SCHEMAS)["$defs"]
    components["securitySchemes"] = {name: {"type": "http", "scheme": name} for name in ("bearer", "basic")}
    return app


def _documented(body: type[BaseModel]) -> dict[str, Any]:
    schema = body.model_json_schema(ref_template=SCHEMAS)
    schema.pop("$defs", None)
    content = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {
        "responses": {status: {"model": protocol.Problem} for status in PROBLEMS},
        "openapi_extra": {"requestBody": content, "security": [{"bearer": []}, {"basic": []}]},
    }

"""The HTTP application: whole groups, OpenRLHF's remote reward, probes and metrics."""

import asyncio
import hmac
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
from starlette.responses import JSONResponse, PlainTextResponse, Response

from restrain_openrlhf.data.identity import model_fingerprint
from restrain_openrlhf.method import build
from restrain_openrlhf.reference import load_reference
from restrain_openrlhf.reference.artifact import SAMPLING, NeededReference, refuse_mismatch
from restrain_openrlhf.reference.prompts import PromptRows
from restrain_openrlhf.scoring import GroupScorer, score_whole_group, wire
from restrain_openrlhf.scoring.service.get_reward import GetReward
from restrain_openrlhf.scoring.service.requests import RefusedError, given_token, read_body, refused
from restrain_openrlhf.scoring.service.service_config import ServiceConfig
from restrain_openrlhf.scoring.service.telemetry import Metrics

PROBLEMS = (400, 401, 404, 408, 409, 413, 422, 500, 503)
SCHEMAS = "#/components/schemas/{model}"


@dataclass
class Service:
    """The state of the process. Raises a RestrainError if the method, the reference or the model is wrong."""

    config: ServiceConfig
    token: str | None
    pending: int = 0
    draining: bool = False

    def __post_init__(self) -> None:
        reference = load_reference(self.config.reference) if self.config.reference else None
        if reference is not None and self.config.service.group_size is not None:
            refuse_mismatch(reference, _needed_of_urls(self.config))
        method = build(self.config.method)
        rows = PromptRows.of(self.config.answer_rows, self.config.answers, method.reads_gold)
        self.config.answers.check(rows.rows.values())
        self.scorer = GroupScorer(method, reference, self.config.answers, rows)
        self.metrics = Metrics()
        self.get_reward = GetReward(self.config.service, self.scorer, self.metrics)
        self.metrics.pending.set_function(lambda: self.pending)
        self.metrics.draining.set_function(lambda: self.draining)

    async def answer(self, request: Request, serve: Callable[[Request], Awaitable[BaseModel]]) -> Response:
        """The reply of `serve`, counted in the metrics. An error becomes a reply as well."""
        path, metrics = request.url.path, self.metrics
        self.pending += 1
        try:
            with metrics.reply_seconds.labels(path).time():
                self._refuse_strangers_and_crowds(request)
                response = Response((await serve(request)).model_dump_json(), media_type="application/json")
        except Exception as error:  # noqa: BLE001 - the client gets no stack trace, and one bad request ends no other
            refusal = refused(error)
            response = JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)
        finally:
            self.pending -= 1
        metrics.requests.labels(path, str(response.status_code)).inc()
        return response

    def _refuse_strangers_and_crowds(self, request: Request) -> None:
        given = given_token(request.headers.get("authorization", "")) or ""
        if self.token is not None and not hmac.compare_digest(given.encode(), self.token.encode()):
            refusal = RefusedError(401, "Send the token as a bearer token, or as http://user:TOKEN@host in the URL.")
            refusal.headers["WWW-Authenticate"] = 'Bearer realm="restrain", Basic realm="restrain"'
            raise refusal
        most = self.config.service.limits.pending
        if self.pending > most:
            raise RefusedError(503, f"{most} requests are pending already (service.limits.pending).", again=True)

    async def score(self, request: Request) -> wire.ScoreReply:
        """Each group's score, in order. Raises a RestrainError if one has none."""
        body = await read_body(request, wire.ScoreRequest, self.config.service)
        counts = {"groups": len(body.groups), "responses": max(len(group.responses) for group in body.groups)}
        for name, count in counts.items():
            most = getattr(self.config.service.limits, name)
            if count > most:
                raise RefusedError(413, f"{count} {name}; at most {most} (service.limits.{name}).")
        self._refuse_other_method(body.method)
        reference = self.scorer.reference
        if reference is not None and body.reference is not None:
            refuse_mismatch(reference, body.reference)
        groups = await asyncio.gather(*map(self._scored, body.groups))
        compared = body.reference is not None
        return wire.ScoreReply(groups=groups, answers=self.scorer.kind.identity, reference_compared=compared)

    async def _scored(self, group: wire.GroupRequest) -> wire.GroupReply:
        truncated = sum(not response.finished for response in group.responses)
        return wire.GroupReply.of(await self.metrics.scored(partial(score_whole_group, self.scorer, group), truncated))

    def _refuse_other_method(self, given: dict[str, Any] | None) -> None:
        # Compare the settings as JSON has them: there infinity is null.
        own = from_json(to_json(self.config.method.model_dump(mode="json"), inf_nan_mode="null"))
        theirs = own if given is None else given
        for key in sorted({*own, *theirs}):
            if theirs.get(key) != own.get(key):
                detail = f"method.{key} is {theirs.get(key)!r} in the request, but {own.get(key)!r} in the service."
                raise RefusedError(409, detail)


def _needed_of_urls(config: ServiceConfig) -> NeededReference:
    """How the reference of /get_reward must have been made; requests do not say which model and sampling they use."""
    block = config.service
    fingerprint = model_fingerprint(block.model) if block.model else None
    drawn = {name: getattr(block, name) for name in SAMPLING}
    needed = NeededReference(model_fingerprint=fingerprint, n=block.group_size, **drawn)
    return needed.by(config.reference_n, config.reference_sampling)


def application(service: Service) -> FastAPI:
    app = FastAPI(title="RESTRAIN: scores groups of rollouts", version=version("restrain-openrlhf"), redoc_url=None)
    _add_scoring(app, service)
    _add_probes(app, service)
    # FastAPI does not know the schemas of the bodies, nor the token, because this service reads both itself.
    components = app.openapi()["components"]
    components["schemas"] |= wire.ScoreRequest.model_json_schema(ref_template=SCHEMAS)["$defs"]
    components["securitySchemes"] = {name: {"type": "http", "scheme": name} for name in ("bearer", "basic")}
    return app


def _add_scoring(app: FastAPI, service: Service) -> None:
    @app.post("/v1/score", response_model=wire.ScoreReply, **_documented(wire.ScoreRequest))
    async def score(request: Request) -> Response:
        """Whole groups in one call."""
        return await service.answer(request, service.score)

    @app.post("/get_reward", response_model=wire.RewardReply | wire.RewardReplies, **_documented(wire.RewardRequest))
    async def get_reward(request: Request) -> Response:
        """One rollout, as OpenRLHF sends it. Answered when its group is scored."""
        return await service.answer(request, service.get_reward.serve)


def _add_probes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Liveness: the loop answers."""
        return {"status": "alive"}

    @app.get("/readyz", responses={503: {"description": "Draining."}})
    async def readyz(response: Response) -> dict[str, str]:
        """Readiness: not draining."""
        response.status_code = 503 if service.draining else 200
        return {"status": "draining" if service.draining else "ready"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Prometheus."""
        return PlainTextResponse(generate_latest(service.metrics.registry))


def _documented(body: type[BaseModel]) -> dict[str, Any]:
    schema = body.model_json_schema(ref_template=SCHEMAS)
    schema.pop("$defs", None)
    content = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {
        "responses": {status: {"model": wire.ProblemReply} for status in PROBLEMS},
        "openapi_extra": {"requestBody": content, "security": [{"bearer": []}, {"basic": []}]},
    }

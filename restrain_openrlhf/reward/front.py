"""What happens to one /get_reward request: graded at once, or seated until its group is scored or its client leaves."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from restrain_openrlhf.reward import protocol
from restrain_openrlhf.reward.desk import Place
from restrain_openrlhf.reward.judge import Judge
from restrain_openrlhf.reward.last_reply import last_reply
from restrain_openrlhf.reward.limits import Refusal
from restrain_openrlhf.reward.metrics import Metrics
from restrain_openrlhf.reward.rendezvous import Rendezvous, StoppingError, UnscorableGroupError
from restrain_openrlhf.reward.seating import Arrival
from restrain_openrlhf.reward.seats import Share
from restrain_openrlhf.reward.transcript import Response as Transcript

CLIENT_CLOSED_REQUEST = 499


@dataclass
class Front:
    """`evaluates`: a row with a label is graded, not voted on. `reward` is what `rewards` carries."""

    rendezvous: Rendezvous
    judge: Judge
    metrics: Metrics
    evaluates: bool
    reward: Literal["net_advantage", "expected"]
    hold_seconds: float

    async def serve(self, request: Request) -> JSONResponse:
        """The reply. Raises Refusal or a RestrainError where there is none to give.

        Nothing here keeps the body while the request waits: a thousand pending rollouts cost their answers' memory.
        """
        begun = await self._begin(await read_body(request))
        return begun if isinstance(begun, JSONResponse) else await self._wait(begun, request.receive)

    async def _begin(self, body: protocol.RewardRequest) -> JSONResponse | Place:
        """A row with a label is answered here; any other gets a place."""
        (query,), (prompt,), gold = body.query, body.prompts, body.gold
        if gold is not None and self.evaluates:
            correct = await self.judge.grade(query, prompt, gold)
            return _json(protocol.RewardReply(rewards=correct, scores=correct))
        self.judge.check(prompt, gold)
        transcript = await self.judge.read(query, prompt)
        label = gold if self.judge.scorer.method.reads_gold else None
        return self.rendezvous.place(key_of(prompt, label), prompt, label, arrival(query, transcript))

    async def _wait(self, place: Place, receive: Receive) -> JSONResponse:
        """Until the share is there, the client is gone, the hold is over, or the service stops; whichever is first."""
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            waited_for: set[asyncio.Future[Any]] = {place.outcome, gone}
            await asyncio.wait(waited_for, timeout=self.hold_seconds, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.metrics.gone.inc()
                raise Refusal(CLIENT_CLOSED_REQUEST, "The client closed the connection.")
            if not place.outcome.done():
                self.metrics.held.inc()
                raise _ask_again(409, "The group is not complete yet")
            reply = _json(self._reply(place.outcome.result()))
            return _Answer(reply, gone, lambda received: self.rendezvous.leave(place, answered=received))
        except UnscorableGroupError:
            self.rendezvous.leave(place, answered=True)
            raise
        except StoppingError:
            self.rendezvous.leave(place, answered=False)
            raise _ask_again(503, "The service is stopping") from None
        except BaseException:
            self.rendezvous.leave(place, answered=False)
            raise
        finally:
            if not place.outcome.done():
                gone.cancel()

    def _reply(self, share: Share) -> protocol.RewardReply:
        net = share.positive + share.negative
        reward = net if self.reward == "net_advantage" else share.reward
        self.metrics.neutral.inc(share.neutral)
        return protocol.RewardReply(
            rewards=reward,
            scores=reward,
            extra_logs={
                protocol.POSITIVE: share.positive,
                protocol.NEGATIVE: share.negative,
                protocol.KL_WEIGHT: share.kl_weight,
                protocol.EXPECTED_REWARD: share.reward,
                protocol.PROMPT_WEIGHT: share.prompt_weight,
                protocol.PENALIZED: float(share.penalized),
            },
        )


class _Answer(JSONResponse):
    """A reply that tells whether it was received, and ends its connection for it.

    `gone` is done if the client left before all was sent.
    """

    def __init__(self, reply: JSONResponse, gone: asyncio.Future[None], ended: Callable[[bool], None]) -> None:
        super().__init__(None)
        self.body, self.gone, self.ended = reply.body, gone, ended
        self.raw_headers = [*reply.raw_headers, (b"connection", b"close")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        last, sent = last_reply(scope), False
        if last is not None:
            last.begin()
        try:
            await super().__call__(scope, receive, send)
            sent = not self.gone.done()
        finally:
            if sent and last is not None:
                last.when_received(self.ended)
            else:
                self.ended(sent)


def _ask_again(status: int, why: str) -> Refusal:
    return Refusal(status, f"{why}; the rollout keeps its place for a while. Ask again.", retry=True)


async def read_body(request: Request) -> protocol.RewardRequest:
    """The request's body; the framework's own reader would keep it until the reply. Raises RequestValidationError."""
    body = b"".join([chunk async for chunk in request.stream()])
    try:
        return protocol.RewardRequest.model_validate_json(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**detail, "loc": ("body", *detail["loc"])} for detail in details]) from None


async def _disconnected(receive: Callable[[], Awaitable[Message]]) -> None:
    """Returns once the client closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def key_of(prompt: str, gold: str | None) -> str:
    """What the rollouts of one group have in common; 64 hex digits."""
    return _digest(prompt if gold is None else f"{prompt}\0{gold}")


def arrival(query: str, transcript: Transcript) -> Arrival:
    """A rollout at the door, under a new name; what it is recognised by is the digest of its query."""
    return Arrival(
        name=secrets.token_hex(8),
        text=_digest(query),
        answer=transcript.answer,
        truncated=transcript.truncated,
        replica="",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _json(reply: protocol.RewardReply) -> JSONResponse:
    return JSONResponse(reply.model_dump())

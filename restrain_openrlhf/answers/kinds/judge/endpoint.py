"""A judge behind HTTP: each question is a POST request, which is repeated while the judge is busy or unreachable."""

import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import IO, Any
from urllib.parse import urlsplit

from restrain_openrlhf.errors import ConfigError, GraderError, reason_of

# Statuses of HTTP after which another try may succeed.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
MOST_BYTES = 1 << 24
# The run's seeded generator is left alone.
_JITTER = random.SystemRandom()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects, because the token would be sent wherever they lead."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class Passing(Exception):  # noqa: N818 - it is told to the loop that tries again, and never raised further
    """A failed try that may be repeated, with its reason, and how many seconds the judge asks to wait."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Endpoint:
    """A judge's address, with the seconds and the number of tries, and the environment variable of its token.

    The token is sent only in the header Authorization.
    """

    url: str
    seconds: float
    tries: int
    token_variable: str | None = None

    def __call__(self, question: Mapping[str, Any]) -> Any:
        """Ask a question and return the reply. Raises GraderError if the judge refuses, or every try fails."""
        request = urllib.request.Request(self.url, json.dumps(question).encode(), self._headers(), method="POST")
        for attempt in range(1, self.tries + 1):
            try:
                return self._reply(request)
            except Passing as failed:
                if attempt == self.tries:
                    raise self._failed(f"{failed} (tries: {self.tries})") from None
                time.sleep(max(failed.wait, FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * _JITTER.uniform(0.5, 1.5)))
        raise AssertionError("there is at least one try")

    def _reply(self, request: urllib.request.Request) -> Any:
        try:
            with _OPENER.open(request, timeout=self.seconds) as response:
                return json.loads(self._body(response))
        except urllib.error.HTTPError as error:
            with error:
                reason = f"status {error.code}: {self._without_token(reason_of(Exception(_start_of(error))))}"
                if error.code in PASSING:
                    raise Passing(reason, _retry_after(error)) from None
            raise self._failed(reason) from None
        except ValueError as error:
            raise self._failed(f"a reply that is not JSON ({reason_of(error)})") from None
        except (OSError, HTTPException) as error:
            raise Passing(reason_of(error)) from None

    def _body(self, response: HTTPResponse) -> bytes:
        """The reply's bytes. Raises Passing if it is cut off or too slow, and GraderError if it is too large."""
        end, body = time.monotonic() + self.seconds, bytearray()
        while part := response.read1(1 << 16):
            body += part
            if time.monotonic() > end:
                raise Passing(f"no whole reply within {self.seconds:g} s")
            if len(body) > MOST_BYTES:
                raise self._failed(f"more than {MOST_BYTES} bytes")
        if response.length:
            raise Passing(f"a reply that was cut off {response.length} bytes before its end")
        return bytes(body)

    def check(self) -> None:
        """Raises ConfigError if a token is named but missing or unusable. Nothing is asked."""
        self._token()

    def _headers(self) -> dict[str, str]:
        token = self._token()
        return {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def _token(self) -> str:
        """The token. Raises ConfigError if it is missing or cannot be in a header; the error does not show it."""
        if self.token_variable is None:
            return ""
        token = os.environ.get(self.token_variable, "").strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"The environment variable {self.token_variable}, which `answers.token_variable` names, holds no "
                "token in this process. Set it to one word of ASCII where the run starts, and on every worker."
            )
        return token

    def _without_token(self, text: str) -> str:
        token = self._token()
        return text.replace(token, "***") if token else text

    def _failed(self, what: str) -> GraderError:
        place = urlsplit(self.url)
        return GraderError(
            f"The judge at {place.scheme}://{place.netloc}{place.path} gave no verdict: {what}. The group was not "
            "scored, because a guess would count as a vote. Read the judge's own log, and start the run again when "
            "the judge answers."
        )


def _start_of(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(300).decode(errors="replace") or str(error.reason)
    except (OSError, HTTPException):
        return str(error.reason)


def _retry_after(error: urllib.error.HTTPError) -> float:
    """The seconds of the header Retry-After, within bounds; 0 if it is absent or a date."""
    try:
        # In this order of arguments, NaN becomes 0.
        return min(max(0.0, float(error.headers.get("Retry-After", 0))), LONGEST_WAIT_SECONDS)
    except ValueError:
        return 0.0

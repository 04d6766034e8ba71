"""Who may ask: one shared token, from a file or the environment, as a bearer token or as a URL's credentials."""

import base64
import binascii
import hmac
import os
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from restrain_openrlhf.errors import ConfigError

TOKEN_VARIABLE = "RESTRAIN_TOKEN"
MIN_TOKEN_LENGTH = 16
# Probes, Prometheus and the documentation: nothing of a prompt or a rollout is in them.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/startupz", "/metrics", "/docs", "/openapi.json"})


def load_token(file: Path | None) -> str | None:
    """The token of --token-file, else of RESTRAIN_TOKEN, else None: everyone may ask.

    Raises ConfigError for a file that cannot be read and for a token that is too short to be one.
    """
    source = str(file) if file else TOKEN_VARIABLE
    token = _read(file) if file else os.environ.get(TOKEN_VARIABLE)
    if token is None:
        return None
    token = token.strip()
    if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"{source}: the token has {len(token)} characters; it needs {MIN_TOKEN_LENGTH} or more, printable ASCII. "
            'Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return token


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}: cannot be read ({error}).") from None


def given_token(authorization: str | None) -> str | None:
    """The token of an Authorization header: `Bearer TOKEN`, or `Basic` with the token as password (or as user alone).

    OpenRLHF's client has no setting for headers, but aiohttp turns http://user:TOKEN@host/ into the latter.
    """
    scheme, _, value = (authorization or "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return password or user


@dataclass(frozen=True)
class TokenGate:
    """Refuses a request without the token before anything of it is read."""

    app: ASGIApp
    token: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._may_ask(scope):
            await self.app(scope, receive, send)
            return
        detail = "A token is needed: send it as a bearer token, or as http://user:TOKEN@host in the URL."
        headers = {"WWW-Authenticate": 'Bearer realm="restrain", Basic realm="restrain"'}
        await JSONResponse({"detail": detail}, status_code=401, headers=headers)(scope, receive, send)

    def _may_ask(self, scope: Scope) -> bool:
        given = given_token(Headers(scope=scope).get("authorization"))
        # Compared even where none was given: the time it takes says nothing.
        return hmac.compare_digest((given or "").encode(), self.token.encode()) and given is not None

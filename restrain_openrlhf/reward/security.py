"""The shared token: where it is read from, and how a client sends it. Imports without the web stack."""

import base64
import os
from pathlib import Path

from restrain_openrlhf.errors import ConfigError

TOKEN_VARIABLE = "RESTRAIN_TOKEN"
FILE_VARIABLE = "RESTRAIN_TOKEN_FILE"
MIN_TOKEN_LENGTH = 16


def load_token(file: Path | None) -> str | None:
    """The token of --token-file, else of the file RESTRAIN_TOKEN_FILE names, else of RESTRAIN_TOKEN, else None.

    Raises ConfigError for a file that cannot be read and for a token that is too short to be one.
    """
    named = file or os.environ.get(FILE_VARIABLE)
    source = f"--token-file {file}" if file else f"{FILE_VARIABLE} {named}" if named else TOKEN_VARIABLE
    try:
        token = Path(named).read_text(encoding="utf-8") if named else os.environ.get(TOKEN_VARIABLE)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: cannot be read ({error}).") from None
    token = None if token is None else token.strip()
    if token is not None and (len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable()):
        raise ConfigError(
            f"{source}: the token has {len(token)} characters; it needs {MIN_TOKEN_LENGTH} or more, printable ASCII. "
            'Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    return token


def given_token(authorization: str) -> str | None:
    """The token of `Bearer TOKEN`, or of `Basic` as password (or as user alone); None of anything else.

    OpenRLHF's client has no setting for headers, but aiohttp makes the latter of http://user:TOKEN@host/.
    """
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return value.strip() if scheme.lower() == "bearer" else None
    try:
        user, colon, password = base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")
    except ValueError:
        return None
    return (password or user) if colon else None

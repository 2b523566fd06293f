"""A database URL, understood once: which database, where, and how to name it without its secrets.
Nothing is opened here.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from humming.errors import StoreError
from humming.spec.naming import did_you_mean

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")
_QUERY = re.compile(r"\?\w+=[^/]*$")
_FORM = "write postgresql://user:password@host/database, percent-encoding @ : / in the password"


@dataclass(frozen=True)
class Address:
    """Where a database is. `shown` names it in messages and never holds a password."""

    kind: Literal["sqlite", "postgresql"]
    shown: str
    path: Path | None = None
    url: URL | None = field(default=None, repr=False)

    def scrub(self, message: str) -> str:
        """`message` without any secret of the URL."""
        if self.url is None:
            return message
        secrets = [self.url.password, *map(self.url.query.get, ("password", "sslpassword"))]
        for secret in secrets:
            if isinstance(secret, str) and secret:
                message = message.replace(secret, "***")
        return message


def parse(text: str) -> Address:
    """The address that `text` names: `sqlite:///PATH`, a bare path, or
    `postgresql://user:password@host/database`.

    The path is taken as it stands, without escapes; a query such as `?mode=ro`, which would become
    a part of the file's name, is refused. Raises StoreError on anything else.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _sqlite(text)
    if scheme in _SQLITE:
        if rest[:1] not in ("/", ""):
            raise StoreError(
                f"a SQLite URL is sqlite:/// and a path, but got '{text}'; add a slash"
            )
        return _sqlite(rest[1:])
    if scheme in _POSTGRES:
        return _postgres(f"postgresql+psycopg://{rest}")
    raise StoreError(
        f"a database URL starts with sqlite:/// or postgresql://, but got '{scheme}://'"
        f"{did_you_mean(scheme, _SQLITE + _POSTGRES)}"
    )


def _sqlite(path: str) -> Address:
    if not path or path == ":memory:" or "\0" in path:
        raise StoreError("a SQLite database needs a file, but the URL names none; add its path")
    query = _QUERY.search(path)
    if query or path.startswith("file:"):
        raise StoreError(
            "a SQLite database is named by its path alone, but got "
            f"'{query[0] if query else path}'; leave {'that' if query else 'file:'} away"
        )
    file = Path(os.path.expanduser(path))  # noqa: PTH111  (leaves a ~ that is nobody's as it is)
    shown = str(file).encode("utf-8", "replace").decode("utf-8")
    return Address("sqlite", shown, path=file)


def _postgres(text: str) -> Address:
    # Here, as a process that serves from a SQLite file need not wait for its import.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    # Nothing of the text goes into these messages, as any part of a mistyped URL may be the
    # password.
    url: URL | None = None
    with contextlib.suppress(ArgumentError, ValueError):
        url = make_url(text)
    if url is None or "@" in f"{url.host}{url.database}":
        raise StoreError(f"the PostgreSQL URL cannot be understood; {_FORM}")
    host = url.host or url.query.get("host") or "local socket"
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return Address("postgresql", f"postgresql://{user}{host}{port}/{url.database or ''}", url=url)

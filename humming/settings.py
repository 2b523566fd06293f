"""Where things are kept: cache, data, database, tables; read when asked, never at import. Makes no
folder."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import platformdirs

DEFAULT_DATABASE = "humming.db"
_SERVER = re.compile(
    r"[\w+]+://(?:(?P<user>[^:/]*)(?::[^@]*)?@)?"
    r"(?:\[(?P<ipv6>[^/?]+)\]|(?P<host>[^/:?]+))?(?::(?P<port>[^/?]*))?"
    r"(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?",
    re.DOTALL,
)
"""A URL of a server, divided as SQLAlchemy does it."""


def cache_dir() -> Path:
    """Folder of compiled kernels: HUMMING_CACHE, else the platform's user cache folder."""
    return _folder("HUMMING_CACHE") or platformdirs.user_cache_path("humming")


def data_dir() -> Path:
    """Folder of the default database and tables: HUMMING_DATA, else the platform's user data
    folder."""
    return _folder("HUMMING_DATA") or platformdirs.user_data_path("humming")


def database_url(explicit: str | None = None) -> str:
    """`explicit`, else HUMMING_DB, else SQLite in the data folder. A bare path becomes a sqlite
    URL."""
    value = explicit or os.environ.get("HUMMING_DB") or str(data_dir() / DEFAULT_DATABASE)
    if "://" in value:
        return value
    if value == ":memory:":  # no file of that name: the store says that it needs a file
        return f"sqlite:///{value}"
    return f"sqlite:///{_path(value).absolute()}"


def table_name() -> str | None:
    """What serves where no table is named: HUMMING_TABLE, else None for the current generation."""
    return os.environ.get("HUMMING_TABLE") or None


def logs(topic: str) -> bool:
    """Whether HUMMING_LOG, a list of topics with commas between them, names `topic`."""
    told = os.environ.get("HUMMING_LOG", "")
    return topic in told.split(",") or _warn_of_topics(told)


@lru_cache(maxsize=8)
def _warn_of_topics(told: str) -> bool:
    """False; warns once of a HUMMING_LOG that names nothing that is told."""
    if told:
        warnings.warn(
            f"HUMMING_LOG must be `dispatch` or empty, but got '{told}'; set HUMMING_LOG=dispatch",
            RuntimeWarning,
            stacklevel=3,
        )
    return False


def keeps_ledger() -> bool:
    """Whether serving processes count their calls: yes, unless HUMMING_LEDGER is 0."""
    return os.environ.get("HUMMING_LEDGER", "") != "0"


def tables_dir(database: str | None = None) -> Path:
    """Folder of the tuned tables of a database, its alone.

    `tables` in the data folder for the default database, `<file>.tables` beside another SQLite
    file, and for a server a folder of the data folder's that is named by where its database is,
    not by who asks.
    """
    url = database_url(database)
    if not url.startswith("sqlite:///"):
        return data_dir() / "tables" / _place(url)
    file = Path(url.removeprefix("sqlite:///"))
    if file == (data_dir() / DEFAULT_DATABASE).absolute():
        return data_dir() / "tables"
    return file.with_name(f"{file.name}.tables")


def spare_tables_dir(database: str | None = None) -> Path:
    """Where tables of a SQLite file are kept whose own folder of tables cannot be written."""
    return data_dir() / "tables" / _hashed([database_url(database)])


def _place(url: str) -> str:
    """A file name made of the host, port, service, database and schema that a server's URL names,
    as libpq takes them: all that tells databases apart, and no secret."""
    parts = _SERVER.fullmatch(url)
    if parts is None:
        return _hashed([url.rpartition("@")[2]])
    asked: dict[str, str] = {}
    for name, value in parse_qsl(parts["query"] or ""):
        asked[name] = f"{asked[name]},{value}" if name in asked else value
    service = asked.get("service") or os.environ.get("PGSERVICE", "")

    def given(name: str, of_url: str | None, variable: str) -> str:
        usual = "" if service else os.environ.get(variable, "")  # a service stands before these
        return asked.get(name) or of_url or usual

    hosts = given("host", parts["ipv6"] or parts["host"], "PGHOST").split(",")
    ports = (given("port", parts["port"], "PGPORT") or ("" if service else "5432")).split(",")
    ports = ports if len(ports) == len(hosts) else [ports[0]] * len(hosts)
    user = asked.get("user") or unquote(parts["user"] or "") or os.environ.get("PGUSER", "")
    database = given("dbname", unquote(parts["database"] or ""), "PGDATABASE")
    return _hashed(
        [
            *(_socket(host, port) for host, port in zip(hosts, ports, strict=True)),
            given("hostaddr", None, "PGHOSTADDR"),
            service,
            database or ("" if service else user),  # PostgreSQL's own default
            *re.findall(r"search_path=(\S+)", asked.get("options", "")),
        ]
    )


def _socket(host: str, port: str) -> str:
    """host:port; a host may bring a port of its own, and names of hosts have no case."""
    if host.startswith(("/", "@")):
        return f"{host}:{port}"
    own = re.fullmatch(r"([\w.-]*):(\d+)", host)
    return f"{own[1]}:{own[2]}".lower() if own else f"{host}:{port}".lower()


def _hashed(names: list[str]) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:32]


def _folder(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return _path(value) if value else None


def _path(value: str) -> Path:
    """`value` with ~ replaced; the ~ of an unknown user stays a name like any other."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        return Path(value)

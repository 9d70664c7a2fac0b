"""The servers of a lake: a bucket that checks signatures, and Iceberg's own REST catalog."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from engines.downloads import S3_SERVER, go_program, jars
from headwater.settings.schema import Settings
from tests.backends.lake.lakes import SEGMENT_ROWS
from tests.servers import Machine, Server, machine_in_a_folder, quiet_port

KEYS: Mapping[str, str] = {"access_key": "an-id", "secret_key": "a-secret-4711"}
REGION = "eu-test-1"
_BUCKET = "lake"
_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CATALOG = "org.apache.iceberg.rest.RESTCatalogServer"


class Bucket:
    """A bucket, the server that has it, and the folder in which that keeps its objects."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self.endpoint = f"http://127.0.0.1:{machine.port}"
        self.files = fs.S3FileSystem(
            scheme="http",
            endpoint_override=f"127.0.0.1:{machine.port}",
            region=REGION,
            allow_bucket_creation=True,
            **KEYS,
        )
        self.files.create_dir(_BUCKET)

    def settings(self, home: Path, prefix: str, **lake: str) -> Settings:
        """Return the settings of a home whose lake is below a prefix of the bucket."""
        where = {"url": f"s3://{_BUCKET}/{prefix}", "endpoint": self.endpoint, "region": REGION}
        return Settings().replace(
            home=home,
            partitions=4,
            offline={"segment_rows": SEGMENT_ROWS},
            lake={**where, **KEYS, **lake},
        )

    def objects(self) -> list[str]:
        """Return the names of all objects, with the bucket."""
        everything = fs.FileSelector(_BUCKET, recursive=True)
        return [found.path for found in self.files.get_file_info(everything) if found.is_file]

    def download(self, folder: Path) -> Path:
        """Copy all objects into a folder, in place of those of earlier; return it."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in self.objects():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.files.open_input_stream(name).readall())
        return folder


@contextmanager
def s3_bucket() -> Iterator[Bucket]:
    """Yield a bucket of a server of S3 that keeps objects as files."""
    program, port = go_program(S3_SERVER), quiet_port()
    folders: list[Path] = []

    def server(folder: Path) -> Server:
        folders.append(folder)
        owner = folder.stat()
        for each in (folder / "objects", folder / "metadata"):
            each.mkdir()
            os.chown(each, owner.st_uid, owner.st_gid)
        # Not every file system has the extended attributes that it uses otherwise.
        storage = ("posix", "--sidecar", str(folder / "metadata"), str(folder / "objects"))
        return Server(
            name="versitygw",
            port=port,
            command=(str(program), "--quiet", "--port", f"127.0.0.1:{port}", *storage),
            is_ready=lambda: is_listening(port),
            stop_signal=signal.SIGTERM,
            environment={
                "ROOT_ACCESS_KEY": KEYS["access_key"],
                "ROOT_SECRET_KEY": KEYS["secret_key"],
                "VGW_REGION": REGION,
            },
        )

    with machine_in_a_folder("s3", server) as machine:
        yield Bucket(machine, folders[0])


@contextmanager
def rest_catalog(bucket: Bucket) -> Iterator[str]:
    """Yield the URL of a catalog that writes the metadata of its tables into a bucket."""
    [jar], port = jars("iceberg-rest"), quiet_port()

    def server(folder: Path) -> Server:
        return Server(
            name="Iceberg's REST catalog",
            port=port,
            command=(*_JAVA, "-cp", str(jar), _CATALOG),
            is_ready=lambda: is_listening(port),
            stop_signal=signal.SIGTERM,
            environment={
                "CATALOG_REST_PORT": str(port),
                "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.sqlite'}",
                "CATALOG_WAREHOUSE": f"s3://{_BUCKET}/warehouse",
                "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
                "CATALOG_S3_ENDPOINT": bucket.endpoint,
                "CATALOG_S3_ACCESS__KEY__ID": KEYS["access_key"],
                "CATALOG_S3_SECRET__ACCESS__KEY": KEYS["secret_key"],
                "CATALOG_S3_PATH__STYLE__ACCESS": "true",
                "CATALOG_CLIENT_REGION": REGION,
            },
        )

    with machine_in_a_folder("catalog", server):
        yield f"http://127.0.0.1:{port}"


def is_listening(port: int) -> bool:
    """Return whether a server listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0

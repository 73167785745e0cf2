"""Tables of object stores after the environment names another server or other credentials."""

import pytest

from daskkern.data.remote.files import file_at, open_file
from tests.support.object_server import object_server


def test_files_are_those_of_the_server_that_the_environment_names_now(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.fsspec import FsspecStore

    for number in (b"1", b"2"):
        with object_server() as server:
            for name, value in server.environment().items():
                monkeypatch.setenv(name, value)
            store = FsspecStore("s3", client_options={"allow_http": True}, skip_instance_cache=True)
            store.pipe_file(f"{server.bucket}/number.txt", number)
            assert file_at(f"s3://{server.bucket}/number.txt") is not None
            with open_file(f"s3://{server.bucket}/number.txt") as stream:
                assert stream.read() == number

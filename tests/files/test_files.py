"""Results appear whole or not at all, and nothing foreign is ever replaced."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from ghost_ray.errors import GateFailed, InputError, JobFailed, one_line, redact
from ghost_ray.files import (
    OutputFolder,
    beside,
    join,
    output_file,
    read_json,
    resolve,
    write_bytes,
    write_json,
)


def finished(folder: Path, text: str = "old") -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"format": "ghost_ray"}))
    (folder / "content").write_text(text)
    return folder


def content_of(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_publishes_everything_and_leaves_nothing_beside(tmp_path: Path) -> None:
    with OutputFolder(str(tmp_path / "deep" / "out")) as output:
        write_bytes(f"{output.staging}/sub/a", b"1")
        write_json(f"{output.staging}/manifest.json", {"format": "ghost_ray"})
        assert not (tmp_path / "deep" / "out").exists()
        output.publish()
    assert set(content_of(tmp_path / "deep")) == {"out/sub/a", "out/manifest.json"}


def test_failed_run_leaves_the_old_result_untouched(tmp_path: Path) -> None:
    out = finished(tmp_path / "out")
    before = content_of(out)
    with pytest.raises(ZeroDivisionError), OutputFolder(str(out), overwrite=True) as output:
        write_bytes(f"{output.staging}/content", b"new")
        raise ZeroDivisionError
    assert content_of(tmp_path) == {f"out/{name}": text for name, text in before.items()}


def test_overwrite_replaces_whole(tmp_path: Path) -> None:
    out = finished(tmp_path / "out")
    with OutputFolder(str(out), overwrite=True) as output:
        write_json(f"{output.staging}/manifest.json", {"format": "ghost_ray"})
        output.publish()
    assert set(content_of(tmp_path)) == {"out/manifest.json"}


def test_refuses_existing_results_foreign_folders_and_files(tmp_path: Path) -> None:
    out = finished(tmp_path / "out")
    with pytest.raises(InputError, match="`overwrite=True`"):
        OutputFolder(str(out))
    foreign = tmp_path / "home"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not a finished ghost_ray result"):
        OutputFolder(str(foreign), overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file"):
        OutputFolder(str(tmp_path / "file"), overwrite=True)
    with pytest.raises(InputError, match="not writable"):
        OutputFolder(str(tmp_path / "file" / "below"))
    assert (foreign / "thesis.tex").read_text() == "years of work"


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with OutputFolder(str(tmp_path / "out")) as output:
        write_json(f"{output.staging}/manifest.json", {"format": "ghost_ray"})
        output.publish()
    assert set(content_of(tmp_path)) == {"out/manifest.json"}


def test_resume_keeps_what_was_staged(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with pytest.raises(ZeroDivisionError), OutputFolder(out, resume=True) as output:
        write_bytes(f"{output.staging}/part", b"done")
        raise ZeroDivisionError
    with OutputFolder(out, resume=True) as output:
        assert (Path(output.staging) / "part").read_bytes() == b"done"


def test_output_file_is_written_whole(tmp_path: Path) -> None:
    out = tmp_path / "scores.parquet"
    with pytest.raises(ZeroDivisionError), output_file(str(out), overwrite=False) as handle:
        handle.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with output_file(str(out), overwrite=False) as handle:
        handle.write(b"whole")
    assert out.read_bytes() == b"whole"
    with pytest.raises(InputError, match="`overwrite=True`"), output_file(str(out), overwrite=False):
        pass
    assert out.read_bytes() == b"whole"


def test_json_refuses_nan_and_says_what_is_malformed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(str(tmp_path / "a.json"), {"score": float("nan")})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "b.json").write_text("{'a': 1}")
    with pytest.raises(ValueError, match="is not valid JSON"):
        read_json(str(tmp_path / "b.json"))


@pytest.mark.parametrize("uri", ["", "a\nb", "a\0b", "nosuchscheme://x/y"])
def test_bad_uris_are_told_apart(uri: str) -> None:
    with pytest.raises(InputError, match=r"^data"):
        resolve(uri, "data")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://AKIAID:verysecret@bucket/key", "s3://bucket/key"),
        ("s3://AKIAID:very/secret+x@bucket/key", "s3://bucket/key"),
        ("s3://AKIAID@bucket/key", "s3://bucket/key"),
        ("s3://bucket/mail@home/key", "s3://bucket/mail@home/key"),
        ("s3://b/k?region=x&secret_key=verysecret&token=verysecret", "s3://b/k?region=x&secret_key=…&token=…"),
        ("cannot parse 's3://a:verysecret@b', nor 's3://c:verysecret@d'", "cannot parse 's3://b', nor 's3://d'"),
        ("s3://AKIAID:very secret@bucket/key", "s3://bucket/key"),
        ("http://127.0.0.1:9000/key, says me@home", "http://127.0.0.1:9000/key, says me@home"),
        ("abfss://train@account.dfs.core.windows.net/x", "abfss://train@account.dfs.core.windows.net/x"),
        ("abfs://train:verysecret@account/x", "abfs://train@account/x"),
        ("abfs://c@a/x?se=2026&sig=verysecret%3D&enable_tls=true", "abfs://c@a/x?se=…&sig=…&enable_tls=true"),
        ("on 'https://a.net/c?sp=r&sig=verysecret%3D' failed", "on 'https://a.net/c?sp=…&sig=…' failed"),
        ("gs://b/k?access_token=verysecret&project_id=p", "gs://b/k?access_token=…&project_id=p"),
        ("abfs://c@a?tenant_id=t&client_secret=verysecret", "abfs://c@a?tenant_id=t&client_secret=…"),
        ("https://x/y?X-Amz-Signature=verysecret", "https://x/y?X-Amz-Signature=…"),
        ("s3://b/k?verysecret", "s3://b/k?…"),
        ("/c?sv=1&sig=verysecret is wrong", "/c?sv=1&sig=… is wrong"),
        ("s3://b?endpoint_override=127.0.0.1:9&scheme=http", "s3://b?endpoint_override=127.0.0.1:9&scheme=http"),
        ("s3://b?endpoint_override=http%3A%2F%2Fu%3Averysecret%40h", "s3://b?endpoint_override=…"),
        ("folder?id=3", "folder?id=3"),
        ("file:///folder?id=3", "file:///folder?id=3"),
    ],
)
def test_no_credentials_are_shown(uri: str, shown: str) -> None:
    assert redact(uri) == shown
    for error in (InputError("--data", uri, f"is {uri}"), JobFailed(f"lost {uri}"), GateFailed(uri)):
        assert "verysecret" not in str(error)
        assert "very secret" not in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_long_message_is_redacted_before_it_is_shortened() -> None:
    place = f"https://account.net/container?sp={'r' * 70}&sig={'verysecret' * 12}&se=2026"
    for limit in range(40, 400, 7):
        assert "secret" not in redact(one_line(f"cannot be opened: {place} (see the log)", limit))


def test_two_containers_of_one_account_are_two_places() -> None:
    one, other = (f"abfss://{name}@account.dfs.core.windows.net/images?sig=x" for name in ("train", "test"))
    assert redact(one) != redact(other)


def test_a_name_below_a_place_is_no_option_of_it() -> None:
    place = join("s3://bucket/key?scheme=http", "a?endpoint_override=elsewhere", "100%25#1")
    assert place.partition("?")[2] == "scheme=http"
    assert resolve(join("s3://bucket/key?region=x", "a?b=c", "100%25#1"))[1] == "bucket/key/a?b=c/100%25#1"
    assert join("folder", "a?b#c%20") == "folder/a?b#c%20"


@pytest.mark.parametrize(
    ("uri", "below", "after"),
    [
        ("folder/", "folder/a/b", "folder.x"),
        ("odd?name", "odd?name/a/b", "odd?name.x"),
        ("s3://bucket/key", "s3://bucket/key/a/b", "s3://bucket/key.x"),
        ("s3://bucket/key/?scheme=http", "s3://bucket/key/a/b?scheme=http", "s3://bucket/key.x?scheme=http"),
    ],
)
def test_options_of_a_uri_stay_at_its_end(uri: str, below: str, after: str) -> None:
    assert join(uri, "a", "b") == below
    assert beside(uri, ".x") == after

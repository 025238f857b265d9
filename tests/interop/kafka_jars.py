"""The jars of a Kafka broker, which Maven fetches once into its local repository.

A clone has only a file with the classpath in `build/kafka`. Maven is first run offline, so a machine with the jars
needs no network.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

VERSIONS: Final = ("4.3.1", "4.1.2")
BUILD: Final = Path(__file__).parents[2] / "build" / "kafka"
# Enough for 120 MB on a slow line.
FETCH_TIMEOUT_S: Final = 300.0

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>seeklog</groupId><artifactId>broker-for-tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class NoJars(Exception):
    """No broker can be run here; the message is one line that says how to change that."""


class Jars(NamedTuple):
    """The classpath of a broker, and its version."""

    version: str
    classpath: str


def find_jars(version: str) -> Jars:
    """Return the jars of a version, fetching them if necessary. Raises `NoJars`."""
    for program, package in (("java", "a Java of 17 or newer"), ("mvn", "Maven")):
        if shutil.which(program) is None and not (program == "java" and "JAVA_HOME" in os.environ):
            raise NoJars(f"a real broker needs {package}: put `{program}` on the PATH")
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / f"{version}.classpath"
    with (BUILD / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of a test run may ask at once
        if not _is_whole(kept, version):
            pom = BUILD / f"{version}.xml"
            pom.write_text(_POM.format(version=version))
            if not (_ask_maven(pom, kept, "--offline") or _ask_maven(pom, kept)) or not _is_whole(kept, version):
                raise NoJars(f"Maven cannot fetch Kafka {version}: run once with a network, or see `mvn -f {pom}`")
    return Jars(version, kept.read_text().strip())


def jars_or_skip(version: str) -> Jars:
    """Return the jars of a version, or skip the test with the reason."""
    try:
        return find_jars(version)
    except NoJars as reason:
        pytest.skip(str(reason))


def _is_whole(kept: Path, version: str) -> bool:
    if not kept.exists():
        return False
    jars = kept.read_text().strip().split(os.pathsep)
    wanted = {f"kafka_2.13-{version}.jar", f"kafka-tools-{version}.jar"}
    return wanted <= {Path(jar).name for jar in jars} and all(Path(jar).exists() for jar in jars)


def _ask_maven(pom: Path, kept: Path, *options: str) -> bool:
    asked = kept.with_suffix(".new")
    goal = ["dependency:build-classpath", "-DincludeScope=runtime", f"-Dmdep.outputFile={asked}"]
    command = ["mvn", "--quiet", "--batch-mode", *options, "--file", str(pom), *goal]
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode == 0 and asked.exists():
        asked.replace(kept)
        return True
    return False

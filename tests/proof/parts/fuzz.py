"""Target 12: decoders get damaged bytes whose checksums are right, and may raise only declared errors."""

from __future__ import annotations

import random
from itertools import islice
from typing import TYPE_CHECKING, Final

from fuzz.campaign import HAS_ATHERIS, damage, run_campaign
from fuzz.mutation import scrambler
from fuzz.peers import READERS, ask
from fuzz.target import load_targets
from proof.part import Missing, Run, part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fuzz.watch import Tally

# The inputs of each target in a full run: ten million if they take at most twenty minutes of a core. The order matters:
# the compiled kernel begins with the corpus that its instrumented twin has collected.
MOST: Final = 10_000_000
BATCHES: Final = {
    "batch_twins": 15_000,
    "batch": MOST,
    "batch_records": MOST,
    "batch_arrow": 300_000,
    "codec": MOST,
    "control": MOST,
}
FILES: Final = {
    "offset_index": MOST,
    "time_index": MOST,
    "seal": MOST,
    "watermark": MOST,
    "snapshot": MOST,
    "key_index": MOST,
    "checkpoint": MOST,
    "epochs": MOST,
}
STORE_FILES: Final = {
    "group_key": MOST,
    "group_offset": MOST,
    "group_state": 1_000_000,
    "catalog": 1_000_000,
    "config": 1_000_000,
    "transaction": 1_000_000,
    "identity": MOST,
    "archive_manifest": 1_000_000,
    "lake_manifest": 1_000_000,
    "root_offsets": MOST,
    "directory": 4_000,
}
# The targets with this prefix begin with the inputs that those before them have found.
SHARED_CORPUS: Final = ("batch", "message")
WIRE: Final = {"message_twins": 1_000_000, "message": MOST, "request": MOST}
MUTANTS: Final = 5_000


@part(
    12,
    "Fuzz record batches whose checksums are right: every reader, both kernels, all codecs",
    covers=("record",),
    uses=("tests/fuzz/__main__.py", "tests/fuzz/targets/batches.py"),
)
def fuzzed_batches(run: Run) -> None:
    fuzz(run, BATCHES, short=40)
    if not run.is_short:
        batches = list(islice(mutants(run.seed), MUTANTS))
        for reader in READERS:
            found = ask(reader, batches, run.scratch)
            if "died" in found:
                run.peer(reader, f"died of signal {-found['died']}: {found['said']}")
            else:
                run.peer(reader, f"{found['undeclared']} of {MUTANTS:,} mutants raise an undeclared exception")


@part(
    12,
    "Fuzz the files beside a log, with right checksums",
    covers=("log.index", "log.keys.index", "log.producers", "log.side"),
    uses=("tests/fuzz/__main__.py", "tests/fuzz/targets/side_files.py", "tests/fuzz/targets/texts.py"),
)
def fuzzed_files(run: Run) -> None:
    fuzz(run, FILES, short=40)


@part(
    12,
    "Fuzz the files of stores, groups, archives and lakes, with right checksums",
    covers=("archive.manifest", "groups.records", "log", "spark.lake.manifest", "store"),
    uses=(
        "tests/fuzz/__main__.py",
        "tests/fuzz/targets/directories.py",
        "tests/fuzz/targets/groups.py",
        "tests/fuzz/targets/texts.py",
    ),
)
def fuzzed_store_files(run: Run) -> None:
    fuzz(run, STORE_FILES, short=25)


@part(
    12,
    "Fuzz the messages of Kafka's protocol, in all versions",
    covers=("wire",),
    uses=("tests/fuzz/__main__.py", "tests/fuzz/targets/wire.py", "tests/wire/values.py"),
)
def fuzzed_messages(run: Run) -> None:
    fuzz(run, WIRE, short=2_000)


def fuzz(run: Run, targets: Mapping[str, int], *, short: int) -> None:
    """Run a campaign on each target, or in a short run try a few damaged inputs in this process."""
    if not run.is_short and not HAS_ATHERIS:
        raise Missing("atheris: pip install atheris")
    known = load_targets()
    slowest, memory, rates = 0.0, 0.0, []
    for name, runs in targets.items():
        if run.is_short:
            tally = damage(known[name], runs=min(short, runs // 200), seed=run.seed)
        else:
            shared = next((one for one in SHARED_CORPUS if name.startswith(one)), name)
            corpus = run.scratch / shared
            tally = run_campaign(name, runs=runs, seed=run.seed, corpus=corpus, findings=run.scratch / "findings")
        judge(run, tally)
        if known[name].is_timed:
            slowest, memory = max(slowest, tally.slowest_ms), max(memory, tally.memory_mib)
        rates.append(f"{name} {tally.executions:,}")
    run.note(f"{len(targets)} decoders: {', '.join(rates)}")
    if not run.is_short:
        run.note(f"slowest input {slowest:.0f} ms, most memory of a run {memory:.0f} MiB")


def judge(run: Run, tally: Tally) -> None:
    run.case(tally.executions)
    for finding in tally.findings:
        run.violation(finding)
    for _ in range(tally.finding_count - len(tally.findings)):
        run.violation(f"{tally.target}: one more finding")
    if not run.is_short and tally.slow:
        run.violation(
            f"{tally.target}: {tally.slow} inputs took more than 50 ms each time, the slowest {tally.slowest_ms} ms"
        )


def mutants(seed: int) -> Iterator[bytes]:
    """Yield randomly damaged batches with right CRCs. The peers get the same."""
    target = load_targets()["batch_records"]
    chance = random.Random(seed)
    scramble = scrambler(chance, size_most=target.size_most)
    seeds = list(target.seeds())
    while True:
        yield target.reseal(target.mutate(chance.choice(seeds), chance, scramble))

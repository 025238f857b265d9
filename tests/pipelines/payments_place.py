"""A store with twenty thousand payments, and the output directory of the pipeline."""

from __future__ import annotations

from pathlib import Path

from payments_oracle import Result, read_result
from pipelines.payments import generate
from pipelines.payments.rules import Rules
from pipelines.payments.run import run
from pyspark.sql import SparkSession

# A batch has seven minutes of payments, less than the lateness of a window, so that some payments are too late.
PER_SECOND, COUNT, MAX_OFFSETS_PER_TRIGGER = 10, 20_000, 4000
# Low enough for several alerts per batch, to test their order.
RULES = Rules(many_payments=100)


class Place:
    """Where one run of the pipeline, or more than one, takes place. All of them begin with the same payments."""

    def __init__(self, home: Path) -> None:
        self.store, self.output = home / "store", home / "output"
        generate.generate(self.store, count=COUNT, per_second=PER_SECOND)

    def run(self, spark: SparkSession) -> None:
        run(
            spark,
            store=self.store,
            output=self.output,
            max_offsets_per_trigger=MAX_OFFSETS_PER_TRIGGER,
            rules=RULES,
        )

    def result(self) -> Result:
        return read_result(self.store, self.output)

    def checkpoint(self, query: str) -> Path:
        return self.output / "checkpoints" / query

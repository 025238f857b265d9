"""The names and limits of the pipeline. Start here to adapt it."""

from __future__ import annotations

from dataclasses import dataclass

PAYMENTS = "payments"


@dataclass(frozen=True, kw_only=True)
class Topics:
    """The topics of the store that the pipeline reads and writes."""

    payments: str = PAYMENTS
    dead_letters: str = "payments-dead-letters"
    alerts: str = "payments-alerts"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The limits of a valid payment, the wait for late payments, and the thresholds of alerts."""

    currencies: tuple[str, ...] = ("INR",)
    # So that hostile amounts do not overflow the sum of a window: nine million such payments fit.
    max_amount_paise: int = 1_000_000_000_000
    # A single clock that runs ahead would move the watermark past all other payments.
    max_ahead_s: int = 60
    # Older payments are dead letters, because a duplicate is not recognised after its first copy is forgotten.
    max_age_s: int = 3600
    # How long a payment's id is remembered: twice max_age_s, as partitions are not read at exactly the same pace.
    remember_s: int = 7200
    window_s: int = 300
    # How long a window waits for late payments.
    lateness_s: int = 600
    # Alert on this many payments of a merchant in one window, and on a payment of this size.
    many_payments: int = 2000
    large_payment_paise: int = 30_000_000

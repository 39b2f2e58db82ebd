"""Internal consistency: money moves between accounts and is never made, in any state that is ever said.

Transfers go through two aggregates, what each account has paid and what it has got, and a join of the two. Some come
late, some are replaced, some deleted. An engine that let one branch run ahead of the other would say balances that do
not add up; here a bucket goes through all boxes before anything of it is said, so after every bucket they sum to 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab

ACCOUNTS = 1_000
START = np.datetime64("2026-01-01", "us")
APART, HOUR = 10_000, 3_600_000_000  # microseconds
# One in twenty comes up to an hour late. For every thirty new transfers an old one is corrected; one correction in five
# is a deletion.
LATE, CORRECTED, DELETED = 20, 30, 5

APPLICATION = """
    CREATE STREAM transfers (id BIGINT, payer INT, payee INT, amount BIGINT, ts TIMESTAMP) EVENT TIME ts KEY (id);
    CREATE STREAM debits AS SELECT payer AS account, sum(amount) AS paid FROM transfers GROUP BY payer;
    CREATE STREAM credits AS SELECT payee AS account, sum(amount) AS got FROM transfers GROUP BY payee;
    CREATE STREAM balances AS
    SELECT c.account, c.got - d.paid AS balance FROM credits c JOIN debits d ON c.account = d.account;
"""

# Every change has a weight; the state after a bucket is all that was said up to it.
STATES = """
    SELECT _bucket, sum(money) OVER so_far AS money, sum(rows) OVER so_far AS rows FROM (
        SELECT _bucket, sum(weight * balance) AS money, sum(weight) AS rows FROM (
            SELECT *, if(_change_type IN ('insert', 'update_postimage'), 1, -1) AS weight FROM {changes}
        ) GROUP BY _bucket
    ) WINDOW so_far AS (ORDER BY _bucket) ORDER BY _bucket
"""


@dataclass
class Bank:
    """What has been sent so far: the transfers as they stand, by id."""

    chance: np.random.Generator
    payer: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    payee: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    amount: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def new(self, many: int) -> pa.Table:
        """The next transfers. The first ones go round, so that every account has paid and been paid."""
        first = len(self.amount)
        ids = np.arange(first, first + many)
        payer, payee, amount = self._draw(many)
        if first == 0:
            payer[:ACCOUNTS], payee[:ACCOUNTS] = np.arange(ACCOUNTS), np.roll(np.arange(ACCOUNTS), 1)
        self.payer, self.payee = np.append(self.payer, payer), np.append(self.payee, payee)
        self.amount = np.append(self.amount, amount)
        return self._rows(ids)

    def corrections(self, many: int) -> tuple[pa.Table, pa.Table]:
        """Replacements of some old transfers, with other accounts and amounts, and deletions of others."""
        known = np.flatnonzero(self.amount[ACCOUNTS:]) + ACCOUNTS
        chosen = self.chance.choice(known, min(many, len(known)), replace=False)
        gone, revised = np.split(chosen, [len(chosen) // DELETED])
        self.payer[revised], self.payee[revised], self.amount[revised] = self._draw(len(revised))
        self.amount[gone] = 0
        return self._rows(revised), pa.table({"id": gone})

    def balances(self) -> dict[int, int]:
        got, paid = (np.zeros(ACCOUNTS, np.int64) for _ in range(2))
        np.add.at(got, self.payee, self.amount)
        np.add.at(paid, self.payer, self.amount)
        return dict(enumerate((got - paid).tolist()))

    def _draw(self, many: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        payer, payee = self.chance.integers(0, ACCOUNTS, (2, many), dtype=np.int32)
        return payer, payee, self.chance.integers(1, 1_000_000, many)

    def _rows(self, ids: np.ndarray) -> pa.Table:
        late = (self.chance.integers(0, LATE, len(ids)) == 0) * self.chance.integers(0, HOUR, len(ids))
        times = START + (ids * APART - late).astype("timedelta64[us]")
        moved = {"id": ids, "payer": self.payer[ids], "payee": self.payee[ids], "amount": self.amount[ids]}
        return pa.table({**moved, "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC"))})


def send(engine: ab.Engine, bank: Bank, transfers: int, many: int) -> None:
    """Send the transfers and their corrections in so many buckets."""
    stream = engine.stream("transfers")
    for number in range(many):
        stream.append(bank.new(transfers // many))
        if number:
            replaced, deleted = bank.corrections(transfers // many // CORRECTED)
            stream.replace(replaced)
            stream.delete(deleted)
        engine.advance()


@pytest.mark.parametrize(
    ("transfers", "many"), [(20_000, 2), pytest.param(1_000_000, 8, marks=pytest.mark.proof)], ids=["small", "full"]
)
def test_every_state_of_the_balances_sums_to_zero(engine: ab.Engine, transfers: int, many: int) -> None:
    engine.sql(APPLICATION)
    bank = Bank(np.random.default_rng(2005))
    send(engine, bank, transfers, many)
    states = engine.spark.sql(STATES, changes=engine.changes("balances")).collect()
    assert [(row.money, row.rows) for row in states] == [(0, ACCOUNTS)] * many
    assert len({row._bucket for row in states}) == many
    table = {row.account: row.balance for row in engine.table("balances").collect()}
    assert table == bank.balances()
    assert np.count_nonzero(bank.amount == 0) > transfers // 1000, "some were deleted"

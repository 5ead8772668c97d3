"""Usage of clients, by model and hour."""

from collections.abc import Mapping, Sequence

from turnbridge.store.database import Database, Transaction, Value
from turnbridge.turn.usage import Counts, UsageKey, UsageQuery, UsageSum

COUNTED = ("requests", "errors", "input", "cached", "output", "reasoning")
ADD = f"""
    INSERT INTO usage (client, hour, model, name, {", ".join(COUNTED)})
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (client, hour, model) DO UPDATE SET
        name = excluded.name, {", ".join(f"{name} = usage.{name} + excluded.{name}" for name in COUNTED)}
"""
TOKENS = """
    SELECT client, CAST(sum(input + output) AS BIGINT) FROM usage WHERE client = ANY($1) AND hour >= $2 GROUP BY client
"""
SUMS = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in COUNTED)


class UsageTable:
    """The store's `UsageStore`."""

    _database: Database

    async def add_usage(self, usage: Mapping[UsageKey, Counts], names: Mapping[str, str]) -> None:
        rows = [
            (*key, names[key.client], *(getattr(counts, name) for name in COUNTED)) for key, counts in usage.items()
        ]
        # In one order everywhere, so that two gateways do not wait for each other's rows.
        await self._database.write(lambda tx: tx.execute_each(ADD, sorted(rows)))

    async def tokens_since(self, clients: Sequence[str], since: int) -> Mapping[str, int]:
        return dict(await self._database.read(lambda tx: tx.rows(lambda *row: row, TOKENS, clients, since)))

    async def usage(self, query: UsageQuery) -> Sequence[UsageSum]:
        sql, values = _statement(query)
        return await self._database.read(lambda tx: tx.rows(_sum, sql, *values))

    async def prune_usage(self, before: int) -> None:
        async def prune(tx: Transaction) -> None:
            await tx.execute("DELETE FROM usage WHERE hour < $1", before)

        await self._database.write(prune)


def _statement(query: UsageQuery) -> tuple[str, list[Value]]:
    values: list[Value] = [query.start, query.end, query.width]
    where = ["hour >= $1", "hour < $2"]
    for column, wanted in (("client", query.client), ("name", query.names), ("model", query.models)):
        if wanted is not None:
            values.append([wanted] if isinstance(wanted, str) else list(wanted))
            where.append(f"{column} = ANY(${len(values)})")
    # Hours are whole, and so is the division.
    bucket = "CAST($1 AS BIGINT) + (hour - CAST($1 AS BIGINT)) / CAST($3 AS BIGINT) * CAST($3 AS BIGINT)"
    groups = ["1", *(["client"] if query.by_client else []), *(["model"] if query.by_model else [])]
    shown = f"{'max(name)' if query.by_client else 'NULL'}, {'model' if query.by_model else 'NULL'}"
    sql = f"""
        SELECT {bucket}, {shown}, {SUMS} FROM usage WHERE {" AND ".join(where)}
        GROUP BY {", ".join(groups)} ORDER BY 1, 2, 3
    """
    return sql, values


def _sum(start: int, client: str | None, model: str | None, *counted: int) -> UsageSum:
    return UsageSum(start=start, client=client, model=model, counts=Counts(**dict(zip(COUNTED, counted, strict=True))))

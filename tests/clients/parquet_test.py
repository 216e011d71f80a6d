"""What a sink writes as Parquet, as a database reads it. Starts brokers from CLIENTS_GODWIT."""

import glob
import os
import shutil
import subprocess
import tempfile
import time
import unittest

import duckdb

from broker import Godwit

GODWIT = os.environ["CLIENTS_GODWIT"]
SHARDS = os.environ["CLIENTS_SHARDS"]
PATIENCE_S = 10
MESSAGES = 2000

OPTIONS = """
[[sink]]
name = "archive"
filters = ["sensors/#"]
batch.wait_ms = 200
file.path = "{}/${{topic[2]}}.parquet"
file.format = "parquet"
columns = ["at=${{timestamp_ms}}", "n=${{payload.n}}", "v=${{payload.v}}", "even=${{payload.even}}",
           "note=${{payload.note}}", "raw=${{payload}}"]
file.types = ["at=timestamp_ms", "n=int64", "v=double", "even=boolean", "raw=bytes"]
"""


def payload(number):
    note = ', "note": "\u00fcber"' if number % 3 == 0 else ""
    even = "true" if number % 2 == 0 else "false"
    return f'{{"n": {number}, "v": {number / 4}, "even": {even}{note}}}'


class Parquet(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        config = os.path.join(self.folder, "godwit.toml")
        with open(config, "w") as file:
            file.write(OPTIONS.format(self.folder))
        self.broker = Godwit("--config", config, shards=SHARDS)
        self.broker.line(r"sink=archive.*connected|connected.*sink=archive")

    def tearDown(self):
        self.broker.stop()
        shutil.rmtree(self.folder)

    def rows(self, query):
        """Of all files that there are, which a reader names by their end."""
        if not glob.glob(f"{self.folder}/*.parquet"):
            return []
        return duckdb.sql(query.replace("FILES", f"'{self.folder}/*.parquet'")).fetchall()

    def test_a_database_reads_all_of_it_with_its_types(self):
        lines = "".join(payload(number) + "\n" for number in range(MESSAGES))
        for room in ("kitchen", "hall"):
            command = [GODWIT, "pub", "-p", str(self.broker.port), "-q", "1",
                       "-t", f"sensors/{room}", "-l"]
            subprocess.run(command, input=lines, text=True, check=True)
        until = time.monotonic() + PATIENCE_S
        while self.rows("SELECT count(*) FROM FILES") != [(2 * MESSAGES,)]:
            self.assertLess(time.monotonic(), until, os.listdir(self.folder))
            time.sleep(0.1)
        types = self.rows("SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM FILES)")
        self.assertEqual(dict(types), {
            "at": "TIMESTAMP WITH TIME ZONE", "n": "BIGINT", "v": "DOUBLE", "even": "BOOLEAN",
            "note": "VARCHAR", "raw": "BLOB"})
        sums = self.rows("SELECT sum(n), sum(v), count(*) FILTER (WHERE even), count(note), "
                         'max(note), min("at") > now() - INTERVAL 1 HOUR FROM FILES')
        total = sum(range(MESSAGES))
        thirds = len(range(0, MESSAGES, 3))
        self.assertEqual(sums, [(2 * total, total / 2, MESSAGES, 2 * thirds, "\u00fcber", True)])
        kitchen = duckdb.sql(f"SELECT raw FROM '{self.folder}/kitchen.*.parquet' ORDER BY n")
        self.assertEqual([row[0].decode() for row in kitchen.fetchall()],
                         [payload(number) for number in range(MESSAGES)])


if __name__ == "__main__":
    unittest.main()

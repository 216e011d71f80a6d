#!/usr/bin/env python3
"""What a sink costs and carries: messages a second published while its far side is not there, rows
a second when it comes, and messages a second published while it works.

    sinks.py --godwit PATH [--messages N] [SINK...]

Redis and InfluxDB (1.x) are started by this; they have to be installed, as has duckdb for Parquet.
"""

import argparse
import glob
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request

PAYLOAD = json.dumps(
    {"sensor": "boiler-7", "at": 1790000000123, "value": 21.5, "unit": "C", "on": True}
    | {"note": "n" * 34}
)
OPTIONS = """
[[sink]]
name = "s"
filters = ["a/#"]
retry_min_ms = 50
retry_max_s = 1
queue.messages_max = 10000000
queue.bytes_max = "4GiB"
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(what, is_so, patience_s=120):
    until = time.time() + patience_s
    while not is_so():
        if time.time() > until:
            raise SystemExit(f"{what}: not within {patience_s} s")
        time.sleep(0.02)


class Files:
    """Of a format; until it starts a file is in the way of their folder."""

    def __init__(self, folder, form):
        self.form, self.place, self.known = form, os.path.join(folder, "rows"), {}
        self.options = f'file.path = "{self.place}/m.{form}"\nfile.format = "{form}"\n'
        open(self.place, "w").close()

    def start(self):
        os.remove(self.place)

    def files(self):
        return sorted(glob.glob(f"{self.place}/m.*{self.form}*"), key=os.path.getmtime)

    def rows(self):
        if self.form == "parquet":
            import duckdb

            for name in self.files():
                if name not in self.known and name.endswith(".parquet"):
                    found = duckdb.sql(f"SELECT count(*) FROM '{name}'").fetchall()
                    self.known[name] = found[0][0]
            return sum(self.known.values())
        headers = len(self.files()) if self.form == "csv" else 0
        return sum(open(name, "rb").read().count(b"\n") for name in self.files()) - headers

    def stop(self):
        pass


class Redis:
    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.options = f'redis.url = "redis://127.0.0.1:{self.port}/0"\nredis.key = "rows"\n'

    def start(self):
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", self.folder, "--save", ""]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_for("Redis", lambda: listens(self.port))

    def rows(self):
        cli = ["redis-cli", "-p", str(self.port), "XLEN", "rows"]
        return int(subprocess.run(cli, capture_output=True, text=True).stdout)

    def stop(self):
        self.server.kill()
        self.server.wait()


class Influx:
    def __init__(self, folder):
        self.folder, self.port, self.other = folder, free_port(), free_port()
        self.options = (
            f'influx.url = "http://127.0.0.1:{self.port}/write?db=plant"\n'
            'influx.measurement = "m"\ninflux.tags = ["topic=${topic}"]\n'
            'influx.fields = ["value=${payload.value}", "on=${payload.on}", '
            "'unit=\"${payload.unit}\"']\n"
        )

    def ask(self, statement):
        words = urllib.parse.urlencode({"db": "plant", "q": statement}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/query", words) as said:
            return json.load(said)

    def start(self):
        path = os.path.join(self.folder, "influxdb.conf")
        with open(path, "w") as file:
            file.write(
                f'reporting-disabled = true\nbind-address = "127.0.0.1:{self.other}"\n'
                f'[meta]\ndir = "{self.folder}/meta"\n[data]\ndir = "{self.folder}/data"\n'
                f'wal-dir = "{self.folder}/wal"\n[monitor]\nstore-enabled = false\n'
                f'[http]\nbind-address = "127.0.0.1:{self.port}"\nlog-enabled = false\n'
            )
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.server = subprocess.Popen(["influxd", "-config", path], **quiet)
        wait_for("InfluxDB", lambda: listens(self.port))
        self.ask("CREATE DATABASE plant")

    def rows(self):
        series = self.ask("SELECT count(value) FROM m")["results"][0].get("series")
        return series[0]["values"][0][1] if series else 0

    def stop(self):
        self.server.kill()
        self.server.wait()


def publish(godwit, port, messages):
    begun = time.time()
    what = ["-t", "a/x", "-q", "1", "-M", "1000", "--repeat", str(messages), "-m", PAYLOAD]
    subprocess.run([godwit, "pub", "-p", str(port), "-V", "5", *what], check=True)
    return messages / (time.time() - begun)


def drained(place, messages):
    """Rows a second, from the first ones on."""
    wait_for("the first rows", lambda: place.rows() > 0)
    begun, before = time.time(), place.rows()
    wait_for("all rows", lambda: place.rows() >= messages)
    return (messages - before) / (time.time() - begun)


def measure(args, name, make):
    with tempfile.TemporaryDirectory() as folder:
        place, config, port = make(folder), os.path.join(folder, "godwit.toml"), free_port()
        with open(config, "w") as file:
            file.write(OPTIONS + place.options)
        command = [args.godwit, "serve", "--config", config, "--data", os.path.join(folder, "data")]
        command += ["--listen", f"tcp://127.0.0.1:{port}"]
        log = open(os.path.join(folder, "log"), "w")
        broker = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for("the broker", lambda: listens(port))
            # Its session is there when it has found nobody.
            wait_for("the sink", lambda: "sink=s" in open(log.name).read())
            dead = publish(args.godwit, port, args.messages)
            place.start()
            rows = drained(place, args.messages)
            live = publish(args.godwit, port, args.messages)
            wait_for("the rest", lambda: place.rows() >= 2 * args.messages)
            place.stop()
        finally:
            broker.terminate()
            broker.wait()
    print(f"| {name} | {dead:,.0f} | {rows:,.0f} | {live:,.0f} |", flush=True)


SINKS = {
    "json": lambda folder: Files(folder, "json"),
    "csv": lambda folder: Files(folder, "csv"),
    "parquet": lambda folder: Files(folder, "parquet"),
    "redis": Redis,
    "influx": Influx,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--godwit", required=True)
    parser.add_argument("--messages", type=int, default=100_000)
    known = ", ".join(SINKS)
    parser.add_argument("sinks", nargs="*", default=list(SINKS), metavar="SINK", help=known)
    args = parser.parse_args()
    print("A second:\n")
    print("| sink | published while it is dead | rows drained | published while it works |")
    print("|---|--:|--:|--:|")
    for name in args.sinks:
        measure(args, name, SINKS[name])


if __name__ == "__main__":
    main()

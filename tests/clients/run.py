#!/usr/bin/env python3
"""Clients of others against the real broker: each suite once with one shard and once with two, and
once more over WebSocket where it can.

    run.py --godwit PATH [--only NAME]... [--shards N]

Prints each runner's closing lines, and everything that it said where it failed. A suite whose
tools are not here is left out by name; a suite that ran no test has failed.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from broker import Godwit

HERE = os.path.dirname(os.path.abspath(__file__))
SUITE_S = 150
# libnng 1.11 now and then uses what it freed of a TLS connection, finds it out itself, and aborts the
# client (nanomsg/nng, issue 2110). That says nothing of the broker, so the suite begins again.
ABORTS_ITSELF = "Report this at https://github.com/nanomsg/nng/issues"
ABORTS_MAX = 2
# Fast $SYS rounds, so that no test waits for one.
WIDE = ["subscription.exclusive_available=true", "sys.interval_s=1"]
# As little as can be offered, to see it announced and held to.
NARROW = [
    "connect.keep_alive_s_max=1",
    "connect.response_information=answers/",
    "connection.packet_bytes_max=4096",
    "connection.topic_alias_max=0",
    "message.qos_max=1",
    "retain.available=false",
    "session.expiry_s_max=3600",
    "shared.available=false",
    "subscription.ids_available=false",
    "subscription.wildcard_available=false",
]


class Suite:
    """How one runner is started, what it needs, and how its closing lines read."""

    def __init__(self, name, command, closing, passed, failed, skipped=None, needs=None, cwd=HERE,
                 web=False):
        self.name, self.command, self.cwd = name, command, cwd
        self.closing, self.needs = closing, needs or (lambda: None)
        self.counts = (passed, failed, skipped)
        # Whether it can come over WebSocket, too.
        self.web = web

    def run(self, env):
        for _ in range(ABORTS_MAX):
            result = self.run_once(env)
            if not result.aborted_itself():
                return result
            print(f"\n{self.name}: libnng aborted its client by itself; once more", flush=True)
        return self.run_once(env)

    def run_once(self, env):
        begun = time.monotonic()
        try:
            done = subprocess.run(self.command, cwd=self.cwd, env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=SUITE_S)
            code, said = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode(errors="replace") + f"\nno end after {SUITE_S} s\n"
            code = -1
        return Result(self, code, said, time.monotonic() - begun)


class Result:
    def __init__(self, suite, code, said, seconds):
        self.suite, self.code, self.said, self.seconds = suite, code, said, seconds
        self.passed, self.failed, self.skipped = (number(said, one) for one in suite.counts)
        # A runner counts all tests where it counts only what went wrong beside them.
        if suite.counts[0] == UNITTEST:
            self.passed -= self.failed + self.skipped

    def ok(self):
        return self.code == 0 and self.failed == 0 and self.passed > 0

    def aborted_itself(self):
        sound = not re.search(r"^(FAIL|ERROR): ", self.said, re.MULTILINE)
        return self.code == -signal.SIGABRT and ABORTS_ITSELF in self.said and sound

    def show(self, shards, web):
        title = f"{self.suite.name}, --shards {shards}" + ", WebSocket" * web
        print(f"\n-- {title}: {self.seconds:.1f} s", flush=True)
        if self.ok():
            lines = [one for one in self.said.splitlines() if re.match(self.suite.closing, one)]
            print("\n".join(lines), flush=True)
        else:
            print(self.said, flush=True)
            print(f"{title}: FAILED, exit code {self.code}", flush=True)


def number(said, pattern):
    """The sum of all numbers that the pattern finds, or how often it matches."""
    if pattern is None:
        return 0
    found = re.findall(pattern, said, re.MULTILINE)
    return sum(int(one) if one.isdigit() else 1 for one in found)


def without(*programs):
    missing = [one for one in programs if not shutil.which(one)]
    return f"{', '.join(missing)} not here" if missing else None


def needs_modules(*names):
    for name in names:
        code = subprocess.run([sys.executable, "-c", f"import {name}"],
                              stderr=subprocess.DEVNULL).returncode
        if code:
            return f"this Python has no {name}"
    return None


def needs_paho():
    return needs_modules("paho.mqtt.client")


def needs_mqtt_js():
    if why := without("node"):
        return why
    paths = [os.path.join(HERE, "js/node_modules"), *os.environ.get("NODE_PATH", "").split(":")]
    there = any(os.path.isdir(os.path.join(path, "mqtt")) for path in paths if path)
    return None if there else "mqtt is neither in js/node_modules nor on NODE_PATH"


def needs_browser():
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        return "chromium not here"
    return without("openssl") or needs_mqtt_js()


def needs_go():
    if why := without("go"):
        return why
    version = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True,
                             check=False).stdout.strip()
    # From 1.21 on Go fetches the version that go.mod wants: https://go.dev/doc/toolchain.
    minor = re.match(r"go1\.(\d+)", version)
    return f"{version} is too old for go.mod" if minor and int(minor[1]) < 21 else None


UNITTEST = r"^Ran (\d+) tests?"


def unittest(name, needs, web=False):
    return Suite(name, [sys.executable, "-m", "unittest", f"{name}_test"], r"Ran \d+ test|OK",
                 UNITTEST, r"(?:failures|errors)=(\d+)", r"skipped=(\d+)", needs,
                 web=web)


SUITES = [
    # The longest first.
    unittest("peers", lambda: needs_modules("paho.mqtt.client", "zmq") or without("nngcat")),
    unittest("mosquitto", lambda: without("mosquitto_pub", "mosquitto_sub", "mosquitto_rr")),
    unittest("paho", needs_paho, web=True),
    unittest("security", needs_paho),
    unittest("caches", needs_paho),
    unittest("quic", lambda: needs_modules("aioquic")),
    unittest("parquet", lambda: needs_modules("duckdb")),
    unittest("zmq", lambda: needs_modules("paho.mqtt.client", "zmq")),
    unittest("nng", lambda: needs_modules("paho.mqtt.client", "pynng")),
    unittest("ekuiper", lambda: needs_modules("paho.mqtt.client", "ekuiper")),
    unittest("gates", lambda: needs_modules("paho.mqtt.client", "zmq")),
    unittest("restarts", lambda: needs_modules("paho.mqtt.client", "pynng", "zmq")),
    unittest("stalls", needs_paho),
    Suite("mqttjs", ["node", "--test", "--test-reporter=tap"], r"# (tests|pass|fail) ",
          r"^# pass (\d+)", r"^# fail (\d+)", r"^# skipped (\d+)", needs_mqtt_js,
          os.path.join(HERE, "js"), web=True),
    Suite("golang", ["go", "test", "-count=1", "-v", "./..."], r"PASS|ok\s",
          r"^--- PASS", r"^--- FAIL", r"^--- SKIP", needs_go,
          os.path.join(HERE, "go")),
    unittest("browser", needs_browser),
    unittest("process", lambda: without("mosquitto_pub", "mosquitto_sub")),
]


def round_of(godwit, shards, suites, web=False):
    """All suites against one pair of brokers, three at a time, since most of it is waiting."""
    with Godwit(godwit=godwit, shards=shards, options=WIDE) as wide, \
            Godwit(godwit=godwit, shards=shards, options=NARROW) as narrow:
        env = {
            **os.environ,
            "CLIENTS_GODWIT": godwit,
            "CLIENTS_PORT": str(wide.port),
            "CLIENTS_NARROW_PORT": str(narrow.port),
            "CLIENTS_SHARDS": str(shards),
        }
        if web:
            pairs = [f"{one.port}={one.web_port}" for one in (wide, narrow)]
            env["CLIENTS_WEB_PORTS"] = " ".join(pairs)
        results = []
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for result in pool.map(lambda suite: suite.run(env), suites):
                result.show(shards, web)
                results.append(result)
        codes = [wide.stop(), narrow.stop()]
    if codes != [0, 0]:
        print(f"the brokers ended with {codes}:\n{wide.text()}\n{narrow.text()}")
        return results, False
    return results, True


def arguments():
    names = [suite.name for suite in SUITES]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--godwit", required=True, help="the broker's binary")
    parser.add_argument("--only", action="append", choices=names, help="only this suite")
    parser.add_argument("--shards", type=int, help="only with so many; default 2, then 1")
    return parser.parse_args()


def main():
    given = arguments()
    # The broker reads options from there; these here are said by flags alone.
    for name in [name for name in os.environ if name.startswith("GODWIT_")]:
        del os.environ[name]
    # Go was put beside this Python where the system's is too old.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    godwit = os.path.abspath(given.godwit)
    chosen = [suite for suite in SUITES if not given.only or suite.name in given.only]
    suites, missing = [], 0
    for suite in chosen:
        if why := suite.needs():
            print(f"{suite.name}: left out: {why}")
            missing += 1
        else:
            suites.append(suite)
    begun, results, sound = time.monotonic(), [], True
    rounds = [(shards, suites, False) for shards in ([given.shards] if given.shards else [2, 1])]
    rounds += [(rounds[0][0], over, True) for over in [[s for s in suites if s.web]] if over]
    for one in rounds:
        more, brokers = round_of(godwit, *one)
        results += more
        sound = sound and brokers
    print(f"\nreal clients together: {time.monotonic() - begun:.1f} s")
    passed, failed, skipped = (sum(getattr(one, name) for one in results)
                               for name in ("passed", "failed", "skipped"))
    # A runner that broke down has not counted what it did not run.
    failed += sum(1 for one in results if not one.ok() and one.failed == 0)
    failed += not sound
    # `cargo x test` has installed all of it where it says so.
    failed += missing if "TEST_ALL_SERVERS" in os.environ else 0
    print(f"clients: {passed} passed, {failed} failed" + (f", {skipped} skipped" * bool(skipped)))
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())

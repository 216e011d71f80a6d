#!/usr/bin/env python3
"""The judge: one broker against the floor and its peers, on this machine, in one run.

This is Godwit's benchmark: `cargo x judge` builds the broker and runs it with the right --broker.

It builds mqload.c (an independent load generator) and floor.c (the least a broker can do: the
kernel's TCP work and one copy) with cc, then runs every scenario against every broker in turn,
ROUNDS times, A B C A B C, and prints the median of each figure. What to quote is `us/msg` (the
broker's own CPU microseconds a delivered message, read from the kernel), its ratio to the floor,
`lost`, and the latency; deliveries a second depend on the machine. A row that lost, doubled or delivered
nothing is INVALID and beats nobody. A broker that sleeps to gather writes looks cheap: read p50 and p99 beside the
floor's in the same run.

  judge.py --broker 'target/release/godwit serve --listen tcp://127.0.0.1:{port}'
  judge.py --broker '...' --peers mosquitto,rumqttd --only A,B,C --rounds 3 --json out.json

{port} and {dir} (an empty scratch folder) are filled in. Peers: mosquitto (Debian's package) and
rumqttd (cargo install rumqttd; its configuration is rumqttd.toml here); any other as
--peer NAME='COMMAND with {port}'. A broker that cannot be started is reported, not skipped silently.
"""
import argparse, json, os, shutil, signal, socket, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
# name: (mqload arguments, needs MQTT 5)
SCENARIOS = {
    "A fan-out 5 to 1000, 250K/s, QoS 1": "--mode fanout --pubs 5 --subs 1000 --topics 5 --rate 50 --qos 1 --secs 5",
    "B fan-out 10 to 500, QoS 0, max": "--mode fanout --pubs 10 --subs 500 --topics 1 --rate 0 --qos 0 --window 200000 --secs 4",
    "B1 fan-out 10 to 500, QoS 1, max": "--mode fanout --pubs 10 --subs 500 --topics 1 --rate 0 --qos 1 --window 50000 --secs 4",
    "B2 fan-out 10 to 500, QoS 2, max": "--mode fanout --pubs 10 --subs 500 --topics 1 --rate 0 --qos 2 --window 50000 --secs 4",
    "C p2p 1000 pairs, 20K/s, QoS 1, 128 B": "--mode p2p --pubs 1000 --rate 20 --qos 1 --size 128 --secs 5",
    "C0 p2p 1000 pairs, QoS 0, 128 B, max": "--mode p2p --pubs 1000 --rate 0 --qos 0 --size 128 --secs 4",
    "C1 p2p 1000 pairs, QoS 1, 128 B, max": "--mode p2p --pubs 1000 --rate 0 --qos 1 --size 128 --secs 4",
    "C2 p2p 1000 pairs, QoS 2, 128 B, max": "--mode p2p --pubs 1000 --rate 0 --qos 2 --size 128 --secs 4",
    "C8 p2p 500 pairs, QoS 1, 8 KB, 5K/s": "--mode p2p --pubs 500 --rate 10 --qos 1 --size 8192 --secs 4",
    "D shared 1000 to 5, 20K/s, QoS 1, v5": "--mode share --pubs 1000 --subs 5 --rate 20 --qos 1 --v5 --secs 5",
    "E 15000 idle connections": "--mode conn --subs 15000 --connrate 5000 --secs 2",
}
NO_FLOOR = ("B2", "C2", "D", "E")


def build(into):
    for name in ("mqload", "floor"):
        subprocess.run(["cc", "-O2", "-w", "-o", f"{into}/{name}", f"{HERE}/{name}.c"], check=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_up(port, proc, secs=10):
    end = time.time() + secs
    while time.time() < end and proc.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


def one(tools, command, args):
    port, scratch = free_port(), tempfile.mkdtemp()
    proc = subprocess.Popen(command.format(port=port, dir=scratch).split(), cwd=os.getcwd(),
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        if not wait_up(port, proc):
            return {"error": f"did not listen (exit {proc.poll()})"}
        time.sleep(0.5)
        run = subprocess.run([f"{tools}/mqload", "--port", str(port), "--pid", str(proc.pid)] + args.split(),
                             capture_output=True, text=True, timeout=90)
        return json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr.strip()[-200:]}
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as e:
        return {"error": type(e).__name__}
    finally:
        proc.terminate()
        try:
            proc.wait(5)
        except subprocess.TimeoutExpired:
            proc.kill()
            proc.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def median(runs, *path):
    values = []
    for r in runs:
        for key in path:
            r = r[key]
        values.append(r)
    return statistics.median(values)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--broker", help="command of the broker under test, with {port} and optionally {dir}")
    p.add_argument("--name", default="godwit")
    p.add_argument("--peers", default="", help="comma list: mosquitto, rumqttd")
    p.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    p.add_argument("--only", default="", help="comma list of scenario letters")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--no-floor", action="store_true")
    p.add_argument("--json")
    a = p.parse_args()
    tools = tempfile.mkdtemp()
    build(tools)
    brokers = {} if a.no_floor else {"floor": f"{tools}/floor {{port}}"}
    if a.broker:
        brokers[a.name] = a.broker
    for name in filter(None, a.peers.split(",")):
        if name == "mosquitto":
            conf = f"{tools}/mosquitto.conf"
            # mosquitto's own way to say so: a listener, nobody refused, no queue cap, no Nagle
            open(conf, "w").write("allow_anonymous true\nmax_queued_messages 0\nset_tcp_nodelay true\nlog_dest none\n")
            brokers[name] = f"sh {tools}/mosquitto.sh {{port}}"
            open(f"{tools}/mosquitto.sh", "w").write(f'(cat {conf}; echo "listener $1 127.0.0.1") >{tools}/m.$1.conf; exec mosquitto -c {tools}/m.$1.conf\n')
        elif name == "rumqttd":
            text = open(f"{HERE}/rumqttd.toml").read()
            open(f"{tools}/rumqttd.tmpl", "w").write(text)
            open(f"{tools}/rumqttd.sh", "w").write(f'sed "s/{{port}}/$1/" {tools}/rumqttd.tmpl >{tools}/r.$1.toml; exec rumqttd -q -c {tools}/r.$1.toml\n')
            brokers[name] = f"sh {tools}/rumqttd.sh {{port}}"
        else:
            sys.exit(f"judge: no such peer: {name}")
    for item in a.peer:
        name, _, command = item.partition("=")
        brokers[name] = command
    letters = set(filter(None, a.only.split(",")))
    results = {}
    for title, args in SCENARIOS.items():
        letter = title.split()[0]
        if letters and letter not in letters:
            continue
        runs = {}
        for _ in range(a.rounds):
            for name, command in brokers.items():
                if name == "floor" and letter in NO_FLOOR:
                    continue
                runs.setdefault(name, []).append(one(tools, command, args))
        print(f"\n{title}   (median of {a.rounds})")
        floor = None
        for name, rs in runs.items():
            bad = [r["error"] for r in rs if "error" in r]
            if bad:
                print(f"  {name:10s} ERROR {bad[0]}")
                continue
            cpu = median(rs, "cpu_us_per_delivery")
            if name == "floor":
                floor = cpu
            row = {"out_per_s": median(rs, "out_per_s"), "us_per_msg": cpu,
                   "lost": max(r["lost"] for r in rs), "doubled": -min(0, min(r["lost"] for r in rs)),
                   "died": max(r["died"] + r["failed"] for r in rs), "p50_ms": median(rs, "lat_ms", "p50"),
                   "p99_ms": median(rs, "lat_ms", "p99"), "rss_mb": median(rs, "rss_max_kb") / 1024,
                   "idle_mb": median(rs, "rss0_kb") / 1024, "connect_us": median(rs, "conn_cpu_us"),
                   "floor_ratio": round(cpu / floor, 2) if floor and cpu else None}
            if letter == "E":
                row["bytes_per_conn"] = round((median(rs, "rss_max_kb") - median(rs, "rss0_kb")) * 1024 / 15000)
                print(f"  {name:10s} {row['bytes_per_conn']:>7d} B a connection   idle {row['idle_mb']:.1f} MB   connect {row['connect_us']:.0f} us CPU   failed {row['died']}")
            else:
                row["valid"] = not (row["lost"] or row["doubled"] or row["died"]) and row["out_per_s"] > 0
                print(f"  {name:10s} {'' if row['valid'] else 'INVALID '}{row['us_per_msg']:>8.3f} us/msg  x{row['floor_ratio'] or '-':<5}  {row['out_per_s']:>10.0f}/s  lost {row['lost']}  doubled {row['doubled']}  died {row['died']}"
                      f"  p50 {row['p50_ms']:.2f} p99 {row['p99_ms']:.2f} ms  {row['rss_mb']:.1f} MB")
            results.setdefault(letter, {})[name] = row
        sys.stdout.flush()
    if a.json:
        json.dump(results, open(a.json, "w"), indent=1)
    shutil.rmtree(tools, ignore_errors=True)


if __name__ == "__main__":
    main()

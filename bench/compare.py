#!/usr/bin/env python3
"""Longhaul beside its peers: one run, one table with ratios, and charts.

    make bench                                     the default selection, three repetitions
    make bench ARGS='--reps 1 --only sqlite'       one store
    make bench PEERS=path/to/peers ARGS='raw-postgres longhaul-postgres --phases enqueue,drain'

PEERS is the folder of the comparison's driver and adapters (bench.py, rust/); Longhaul's own adapter is bench/peer.
Each repetition runs all of them once, starting with a different one, so that a slow minute of the machine affects one
measurement of one of them. A figure is the median of the repetitions; use at least three. Two workers are measured in the
first repetition only. Each backlog is measured separately, the longest last, and before each of them the same head is
drained alone.

Everything that is built or installed for the peers is in target/peers. The results are in target/peers/results.jsonl,
with those of each repetition beside it. `--table` prints the table from there, and `--charts` draws the charts of
docs/benchmarks; without it, a run of a few does not change them.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import pwd
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHARTS = ROOT / "docs" / "benchmarks"
OURS = {
    "longhaul-postgres": dict(env={"STORE": "postgres"}, store="pg", backlog=True),
    "longhaul-sqlite": dict(env={"STORE": "sqlite"}, store="file", inproc=True, backlog=True),
    "longhaul-mariadb": dict(env={"STORE": "mysql"}, store="mariadb", backlog=True),
    # Tasks in PostgreSQL, hints over RabbitMQ: both servers run.
    "longhaul-amqp": dict(env={"STORE": "postgres", "BROKER": "amqp"}, store="amqp", backlog=True),
}
# The bare loops, and the peers that were fastest in some measure.
SELECTION = {
    "postgres": ["raw-postgres", "longhaul-postgres", "graphile-worker-rs", "apalis-postgres", "fang", "sqlxmq"],
    "sqlite": ["raw-sqlite-full", "longhaul-sqlite", "effectum"],
    "mysql": ["raw-mariadb", "longhaul-mariadb"],
    "rabbitmq": ["raw-amqp", "longhaul-amqp", "celery-amqp", "dramatiq-amqp", "taskiq-amqp"],
}
# Peers in Python, and their packages.
PYTHON = {"celery-amqp": "celery", "dramatiq-amqp": "dramatiq[rabbitmq]", "taskiq-amqp": "taskiq taskiq-aio-pika"}
PEERS_ON_POSTGRES = ["graphile-worker-rs", "apalis-postgres", "fang", "sqlxmq"]
# What each figure is divided by, and the least ratio.
RATIOS = [
    ("longhaul-postgres", "steady", PEERS_ON_POSTGRES, 1.1, "drain, beside the fastest peer"),
    ("longhaul-postgres", "steady", ["raw-postgres"], None, "drain, beside the bare loop"),
    ("longhaul-postgres", "conc", ["raw-postgres"], 0.9, "16 callers, beside the bare loop"),
    ("longhaul-postgres", "conc", PEERS_ON_POSTGRES, 1.5, "16 callers, beside the best peer"),
    ("longhaul-postgres", "seq", ["raw-postgres"], 0.9, "one caller, beside the bare loop"),
    ("longhaul-postgres", "bulk", ["graphile-worker-rs", "apalis-postgres"], 1.2, "bulk, beside the best peer"),
    ("longhaul-sqlite", "steady", ["effectum"], 4.0, "drain, beside effectum"),
    ("longhaul-sqlite", "bulk", ["effectum"], 1.0, "bulk, beside effectum"),
    ("longhaul-mariadb", "steady", ["longhaul-postgres"], 0.6, "drain, beside Longhaul on PostgreSQL"),
    ("longhaul-amqp", "steady", ["celery-amqp"], 2.5, "drain over RabbitMQ, beside Celery"),
    ("longhaul-amqp", "steady", ["dramatiq-amqp"], 1.2, "drain over RabbitMQ, beside dramatiq"),
    ("longhaul-amqp", "steady", ["raw-amqp"], None, "drain over RabbitMQ, beside a bare consumer without storage"),
    ("longhaul-amqp", "conc", ["dramatiq-amqp"], 2.0, "16 callers with RabbitMQ on, beside dramatiq"),
]
HEAD_RATIO = 0.8
# A disk may be slow for some seconds after gigabytes of writes, and a head is drained in less than one.
DISK_REST_S = 10
# The most that a figure may be: a number, or a multiple of another's. For all of ours, the greatest counts.
LIMITS = [
    ("longhaul-postgres", "p50", 1.2, "raw-postgres", "median from submit to start, beside the bare loop, ms"),
    ("longhaul-sqlite", "p50", 1.5, None, "median from submit to start, ms"),
    ("longhaul-amqp", "p50", 1.0, "celery-amqp", "median from submit to start over RabbitMQ, beside Celery, ms"),
    (None, "rss_idle", 30, None, "memory at idle, MiB"),
    (None, "rss_backlog", 60, None, "memory with the longest backlog waiting, MiB"),
]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*", help="only these, by the driver's names")
    ap.add_argument("--peers", default=os.environ.get("PEERS", ""), help="the folder of the driver (PEERS)")
    ap.add_argument("--only", choices=sorted(SELECTION), help="one store")
    ap.add_argument("--table", action="store_true", help="print the table of the last results, without a run")
    ap.add_argument("--charts", action="store_true", help="also draw the charts of docs/benchmarks")
    ap.add_argument("--reps", type=int, default=3, choices=range(1, 100), metavar="N", help="repetitions, by default 3")
    ap.add_argument("-n", default="20000")
    ap.add_argument("--backlog", default="200000,1000000", type=counts, metavar="N,…",
                    help="sizes of the backlogs whose heads are drained")
    ap.add_argument("--head", default="50000", help="tasks drained at the head of each backlog")
    ap.add_argument("--phases", default="enqueue,drain,drain2,latency,backlog")
    options = ap.parse_args()
    work = ROOT / "target" / "peers"
    results = work / "results.jsonl"
    names = options.names or SELECTION.get(options.only) or [name for group in SELECTION.values() for name in group]
    if not options.table:
        peers = pathlib.Path(options.peers)
        if not (peers / "bench.py").exists():
            sys.exit("bench: no bench.py in PEERS; set the folder of the comparison's driver: make bench PEERS=path/to/peers")
        build(peers, work, [name for name in names if name not in OURS])
        run(peers, work, results, names, options)
    rows = show(results, names)
    if options.charts:
        draw(rows, names)


def counts(text):
    """Parses positive numbers with commas between them, sorted."""
    found = sorted({int(number) for number in text.split(",")})
    if found[0] < 1:
        raise ValueError(text)
    return found


def build(peers, work, names):
    """Builds Longhaul's adapter and those of the chosen peers, from a copy."""
    subprocess.run(["cargo", "build", "--release", "--locked", "-p", "longhaul-bench-peer"], cwd=ROOT, check=True)
    shutil.copytree(peers / "rust", work / "rust", dirs_exist_ok=True)
    install_python(peers, work, [name for name in names if name in PYTHON])
    names = [name for name in names if name not in PYTHON]
    # The driver uses this one to count the messages in a queue of RabbitMQ.
    names += ["raw-amqp"] * (any(name.endswith("-amqp") for name in names) and "raw-amqp" not in names)
    for name in names:
        folder = "raw-sqlite" if name.startswith("raw-sqlite") else name
        manifest = work / "rust" / folder / "Cargo.toml"
        print(f"bench: building {folder}", file=sys.stderr)
        env = {**os.environ, "CARGO_TARGET_DIR": str(work / "target")}
        subprocess.run(["cargo", "build", "--release", "-q", "--manifest-path", str(manifest)], env=env, check=True)
        # The driver asks cargo for the path of a peer's sources, offline.
        subprocess.run(["cargo", "fetch", "-q", "--manifest-path", str(manifest)], env=env, check=True)


def install_python(peers, work, names):
    """Installs the chosen peers in Python into a virtual environment."""
    if not names:
        return
    shutil.copytree(peers / "python", work / "python", dirs_exist_ok=True)
    python = work / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
    for name in names:
        module = "taskiq_aio_pika" if name.startswith("taskiq") else name.split("-")[0]
        if subprocess.run([str(python), "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode:
            print(f"bench: installing {PYTHON[name]}", file=sys.stderr)
            subprocess.run([str(python), "-m", "pip", "install", "-q", *PYTHON[name].split()], check=True)


def run(peers, work, results, names, options):
    os.environ["WORK"] = str(work)
    spec = importlib.util.spec_from_file_location("peers_bench", peers / "bench.py")
    driver = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    adapter = str(target / "release" / "longhaul-bench-peer")
    start_rabbitmq = driver.Servers.start_amqp
    # Longhaul on RabbitMQ needs PostgreSQL too, which is idle for the other peers on RabbitMQ.
    driver.Servers.start_amqp = lambda servers: (servers.need("pg"), start_rabbitmq(servers))
    start_mariadb = driver.Servers.start_mariadb
    driver.Servers.start_mariadb = lambda servers: (need_user("mysql"), start_mariadb(servers))
    for name, settings in OURS.items():
        driver.PEERS[name] = dict(cmd=[adapter], modes=driver.ALL, pending="cmd", **settings)
    memory = note_memory(driver)
    rounds = {name: [] for name in names}
    for old in [results, *results.parent.glob("round-*.jsonl")]:
        old.unlink(missing_ok=True)
    for number in range(options.reps):
        first = number % len(names)
        for phases, backlog in measurements(options, number):
            part = results.with_name(f"round-{number + 1}-{backlog or 'phases'}.jsonl")
            of = f" with {backlog:,} waiting" if backlog else ""
            print(f"bench: repetition {number + 1} of {options.reps}{of}", file=sys.stderr)
            sys.argv = ["bench.py", *names[first:], *names[:first], "--reps", "1", "-n", options.n, "--phases", phases,
                        "--backlog", str(backlog or 0), "--head", options.head, "--out", str(part)]
            memory.clear()
            if backlog:
                # The writes of the measurement before must not count.
                os.sync()
                time.sleep(DISK_REST_S)
            driver.main()
            for row in map(json.loads, part.read_text().splitlines()):
                if backlog:
                    row = of_backlog(row, backlog, memory.get(row["peer"]) if backlog == options.backlog[-1] else None)
                rounds[row["peer"]].append(row)
            # Written after each one, so that a failure of the next loses nothing.
            results.write_text("".join(json.dumps(medians(name, rows)) + "\n" for name, rows in rounds.items()))


def measurements(options, number):
    """The driver's runs of a repetition: the phases, and then each backlog alone."""
    asked = options.phases.split(",")
    phases = [phase for phase in asked if phase != "backlog" and (number == 0 or phase != "drain2")]
    backlogs = options.backlog if "backlog" in asked else []
    return [(",".join(phases), None)] * bool(phases) + [("backlog", backlog) for backlog in backlogs]


def of_backlog(row, backlog, memory):
    """The figures of a measurement with this backlog."""
    heads = {f"head_alone_{backlog}": row.get("head_small_steady"), f"head_of_{backlog}": row.get("head_big_steady")}
    return {"peer": row["peer"], "error": row.get("error"), "rss_backlog": memory, **heads}


def need_user(name):
    """Creates the user that the driver runs MariaDB as, if no package has."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name], check=True)


def medians(name, rows):
    """Combines rows: the median of each figure, and all errors."""
    keys = {key for row in rows for key, value in row.items() if isinstance(value, (int, float))}
    values = {key: [row[key] for row in rows if row.get(key) is not None] for key in keys}
    # `extra` counts tasks that ran more than once, where the worst repetition counts.
    figures = {key: max(of) if key == "extra" else statistics.median(of) for key, of in values.items()}
    errors = [row["error"] for row in rows if row.get("error")]
    return {"peer": name, **figures, **({"error": "; ".join(errors)} if errors else {})}


def note_memory(driver):
    """Records the memory of each peer's worker when it is stopped, which is after the head of a backlog."""
    memory, stop = {}, driver.Peer.stop

    def stop_and_note(peer):
        if peer.workers and peer.cfg.get("backlog"):
            memory[peer.name] = sum(driver.rss_mb(worker.pid) for worker in peer.workers)
        stop(peer)

    driver.Peer.stop = stop_and_note
    return memory


def show(results, names):
    if not results.exists():
        sys.exit("bench: there are no results yet")
    rows = {row["peer"]: row for row in map(json.loads, results.read_text().splitlines())}
    backlogs = sorted({int(key.removeprefix("head_of_")) for row in rows.values() for key in row if key.startswith("head_of_")})
    columns = [("seq", "1 caller/s"), ("conc", "16 callers/s"), ("bulk", "bulk/s"), ("steady", "drain/s"),
               ("steady2", "drain by two/s"), ("p50", "p50 ms"), ("p99", "p99 ms"), ("rss_idle", "idle MiB"),
               ("rss_drain", "drained MiB")]
    for backlog in backlogs:
        columns += [(f"head_alone_{backlog}", "head alone/s"), (f"head_of_{backlog}", f"head of {backlog:,}/s")]
    columns += [("rss_backlog", "backlog MiB")]
    print("\n| | " + " | ".join(title for _, title in columns) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for name in names:
        row = rows.get(name, {})
        print(f"| {name} | " + " | ".join(number(row.get(key), key) for key, _ in columns) + " |"
              + (f" {row['error']}" if row.get("error") else ""))
    print("\n| what | ours | beside | ratio | target |\n| --- | ---: | ---: | ---: | ---: |")
    heads = [(name, f"head_of_{backlog}", [f"{name}:head_alone_{backlog}"], HEAD_RATIO, f"head of {backlog:,}, beside the same alone")
             for name in OURS for backlog in backlogs]
    for ours, key, others, wanted, title in RATIOS + heads:
        mine = rows.get(ours, {}).get(key)
        beside = [rows.get(other.split(":")[0], {}).get(other.split(":")[1] if ":" in other else key) for other in others]
        beside = max((value for value in beside if value), default=None)
        if not mine or not beside:
            continue
        ratio = mine / beside
        mark = "" if wanted is None or ratio >= wanted else " ✗"
        print(f"| {ours}: {title} | {mine:,.0f} | {beside:,.0f} | {ratio:.2f}{mark} | {f'≥ {wanted}' if wanted else ''} |")
    for ours, key, most, other, title in LIMITS:
        measured = [rows[name][key] for name in ([ours] if ours else OURS) if rows.get(name, {}).get(key) is not None]
        beside = rows.get(other, {}).get(key)
        if not measured or (other and beside is None):
            continue
        mine = max(measured)
        value = mine / beside if other else mine
        mark = "" if value <= most else " ✗"
        what = (f"{ours}: " if ours else "") + title
        shown = ("at most " if len(measured) > 1 else "") + number(mine, key)
        print(f"| {what} | {shown} | {number(beside, key)} | {f'{value:.2f}' if other else ''}{mark} | ≤ {most} |")
    return rows


def draw(rows, names):
    CHARTS.mkdir(parents=True, exist_ok=True)
    for key, title in [("steady", "Drain of no-op tasks, tasks per second"), ("conc", "Submits of 16 callers, tasks per second"),
                       ("bulk", "Submit in bulk, tasks per second"), ("p50", "From submit to start, median, milliseconds")]:
        bars = [(name, rows[name][key]) for name in names if rows.get(name, {}).get(key)]
        if bars:
            (CHARTS / f"{key}.svg").write_text(chart(title, bars, key))


def number(value, key):
    if value is None:
        return ""
    return f"{value:.2f}" if key in ("p50", "p99") else f"{value:,.0f}"


def chart(title, bars, key):
    """Horizontal bars, with ours highlighted."""
    width, left, height = 720, 180, 26
    most = max(value for _, value in bars)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {50 + height * len(bars)}" font-family="sans-serif" font-size="13">',
             f'<text x="10" y="24" font-size="15">{title}</text>']
    for index, (name, value) in enumerate(bars):
        y = 42 + index * height
        colour = "#2a78d6" if name.startswith("longhaul") else "#b9c2cc"
        length = (width - left - 90) * value / most
        lines.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{name}</text>')
        lines.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="18" rx="3" fill="{colour}"/>')
        lines.append(f'<text x="{left + length + 6:.1f}" y="{y + 14}">{number(value, key)}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    main()

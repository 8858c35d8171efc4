#!/usr/bin/env python3
"""Starts Prometheus, and Grafana if it is installed, for the local cluster of 'lynxctl local up': dashboards.py [--home
FOLDER] [--interval TIME]. Runs until Ctrl-C or SIGTERM. Keeps everything in $LYNX_HOME/dashboards, which each start
makes anew."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROMETHEUS_PORT, GRAFANA_PORT = 9090, 3000
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE = 60  # seconds for a server to answer
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a web proxy cannot reach this machine's ports
GRAFANA_HOMES = ("/usr/share/grafana", "/usr/local/share/grafana")


class Stopped(Exception):
    pass


class Stop:
    """Stops this program after a signal. The signal takes effect only in rest(), so that the program cannot end between the
    start of a server and the moment at which it has noted the server's process."""

    asked = False

    @classmethod
    def ask(cls, *_):
        cls.asked = True

    @classmethod
    def rest(cls, seconds):
        time.sleep(seconds)
        if cls.asked:
            raise Stopped


def port_near(wanted):
    """Returns the port `wanted`, or another free port if some program already listens at `wanted`."""
    for port in (wanted, 0):
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return one.getsockname()[1]
    raise OSError("no port is free")


def targets(cluster):
    """Returns the targets that Prometheus scrapes: the daemons of a cluster.json, with the label that alert rules expect."""
    by_kind = {}
    for daemon in cluster["daemons"]:
        by_kind.setdefault("lynx-" + daemon["name"].rpartition(".")[2], []).append(daemon["metricsAddress"])
    return [{"targets": addresses, "labels": {"job": kind}} for kind, addresses in sorted(by_kind.items())]


def write_configuration(home, folder, interval):
    """Writes Prometheus' files for the cluster in `home`. Returns the path of its configuration."""
    cluster_file = home / "local" / "cluster.json"
    if not cluster_file.exists():
        sys.exit(f"error: there is no local cluster in {home}: start one with 'lynxctl local up', or name the folder of another with --home or LYNX_HOME")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "dashboards" / "prometheus", folder / "prometheus")
    (folder / "prometheus" / "targets").mkdir()
    (folder / "prometheus" / "targets" / "lynx.json").write_text(json.dumps(targets(json.loads(cluster_file.read_text()))))
    configuration = folder / "prometheus" / "prometheus.yml"
    configuration.write_text(configuration.read_text().replace("_interval: 5s", f"_interval: {interval}"))
    return configuration


def answers(url):
    try:
        DIRECT.open(url, timeout=5).close()
        return True
    except OSError:
        return False


def start(name, arguments, folder, url, **more):
    """Starts a server and waits until `url` answers. Its log is in `folder`."""
    log = folder / f"{name}.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **more)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"error: {name} does not answer at {url}; its log is {log}:\n{log.read_text()[-1000:]}")
            Stop.rest(0.1)
    except BaseException:
        end(process)
        raise
    return process


def end(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start_prometheus(home, folder, interval):
    """Starts Prometheus. Returns the process and its address. Exits with an error if Prometheus is not installed."""
    program = shutil.which("prometheus")
    if program is None:
        sys.exit("error: prometheus is not installed: scripts/install.sh installs it, or 'apt-get install prometheus'")
    configuration = write_configuration(home, folder, interval)
    url = f"http://127.0.0.1:{port_near(PROMETHEUS_PORT)}"
    arguments = [program, f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={url.removeprefix('http://')}"]
    return start("prometheus", arguments, folder, f"{url}/-/ready"), url


def grafana():
    """Returns the beginning of Grafana's command line, and its home folder; None if Grafana is not installed."""
    for home in GRAFANA_HOMES:
        for name in ("grafana-server", "grafana"):
            program = pathlib.Path(home) / "bin" / name
            if program.exists():
                return [str(program)] + (["server"] if name == "grafana" else []), home
    program = shutil.which("grafana-server")
    return ([program], GRAFANA_HOMES[0]) if program else None


def start_grafana(folder, prometheus_url):
    found = grafana()
    if found is None:
        print("Grafana is not installed (https://grafana.com/grafana/download); where it is, this shows the dashboards in it. "
              f"One that runs elsewhere takes the files in {ROOT / 'dashboards' / 'grafana'}", flush=True)
        return None
    program, home = found
    url = f"http://127.0.0.1:{port_near(GRAFANA_PORT)}"
    env = dict(os.environ, LYNX_PROMETHEUS_URL=prometheus_url, LYNX_DASHBOARDS=str(ROOT / "dashboards" / "grafana"),
               GF_PATHS_DATA=str(folder / "grafana"), GF_PATHS_LOGS=str(folder), GF_PATHS_PROVISIONING=str(ROOT / "dashboards" / "provisioning"),
               GF_SERVER_HTTP_ADDR="127.0.0.1", GF_SERVER_HTTP_PORT=url.rpartition(":")[2], GF_AUTH_ANONYMOUS_ENABLED="true",
               GF_AUTH_ANONYMOUS_ORG_ROLE="Viewer", GF_ANALYTICS_REPORTING_ENABLED="false", GF_ANALYTICS_CHECK_FOR_UPDATES="false")
    process = start("grafana", [*program, "--homepath", home], folder, f"{url}/api/health", env=env)
    print(f"Grafana shows the dashboards at {url}/d/lynx-cluster", flush=True)
    return process


def main():
    parser = argparse.ArgumentParser(description="Prometheus and Grafana for the local cluster")
    parser.add_argument("--home", type=pathlib.Path, default=pathlib.Path(os.environ.get("LYNX_HOME", pathlib.Path.home() / ".lynx")),
                        help="where the cluster is (default: $LYNX_HOME)")
    parser.add_argument("--interval", default="5s", help="between two readings of the daemons' pages (default: 5s)")
    options = parser.parse_args()
    folder = options.home.resolve() / "dashboards"
    processes = []
    for number in SIGNALS:
        signal.signal(number, Stop.ask)
    try:
        process, url = start_prometheus(options.home.resolve(), folder, options.interval)
        processes.append(process)
        print(f"Prometheus has the cluster's metrics at {url}/graph, its alerts at {url}/alerts", flush=True)
        processes.append(start_grafana(folder, url))
        while all(one is None or one.poll() is None for one in processes):
            Stop.rest(0.2)
        sys.exit(f"error: a server has ended; the logs are in {folder}")
    except Stopped:
        pass
    finally:
        for one in processes:
            if one is not None:
                end(one)


if __name__ == "__main__":
    main()

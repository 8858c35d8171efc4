"""Checks the files of deploy/docker: their parts fit together, and the flags, programs, users and packages that they name exist."""

import ipaddress
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/docker"
BIN = pathlib.Path(os.environ.get("LYNX_BIN", ROOT / "build/bin"))
FOREIGN = ("prometheus", "grafana")
MACHINES = ("head", "node0", "node1")


def help_of(program):
    return subprocess.run([str(BIN / program), "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def merged(files):
    """What `docker compose -f FILE -f FILE` makes of the files: a later file replaces values and commands, adds to objects and lists, and
    replaces a volume that is mounted at the same place."""
    whole = {}
    for file in files:
        _merge(whole, yaml.safe_load((FOLDER / file).read_text()))
    return whole


def _merge(into, more):
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif key == "volumes" and isinstance(into.get(key), list):
            places = {volume.split(":")[1] for volume in value}
            into[key] = [volume for volume in into[key] if volume.split(":")[1] not in places] + value
        elif isinstance(value, list) and isinstance(into.get(key), list) and key != "command":
            into[key] = into[key] + value
        else:
            into[key] = value


class ComposeTest(unittest.TestCase):
    FILES = ("compose.yaml",)
    SERVERS = {"server": "head"}  # service -> the machine that runs the service
    TARGETS = "targets.json"
    FOREIGN = FOREIGN
    MACHINES = MACHINES

    def setUp(self):
        self.compose = merged(self.FILES)
        self.services = self.compose["services"]
        self.own = {name: service for name, service in self.services.items() if name not in self.FOREIGN + self.MACHINES}

    def flags_of(self, name):
        return {word.partition("=")[0]: word.partition("=")[2] for word in self.own[name]["command"][1:]}

    def network_of(self, name):
        """The machine whose network the container `name` uses."""
        return self.own[name]["network_mode"].removeprefix("service:")

    def address_of(self, name):
        return self.services[self.network_of(name)]["networks"]["lynx"]["ipv4_address"]

    def test_services_are_those_of_two_nodes(self):
        self.assertEqual(sorted(self.services), sorted([*self.FOREIGN, *self.MACHINES, "node0-agent", "node0-worker", "node1-agent", "node1-worker",
                                                        *self.SERVERS]))
        for name in self.own:
            program = "lynx-server" if name in self.SERVERS else "lynx-" + name.rpartition("-")[2]
            self.assertEqual(self.own[name]["command"][0], program)
            known = set(re.findall(r"^  (--[a-z-]+)", help_of(program), re.MULTILINE))
            self.assertLessEqual(set(self.flags_of(name)), known)

    def test_addresses_are_the_services_own(self):
        subnet = ipaddress.ip_network(self.compose["networks"]["lynx"]["ipam"]["config"][0]["subnet"])
        others = ipaddress.ip_network(self.compose["networks"]["lynx"]["ipam"]["config"][0]["ip_range"])
        addresses = [self.services[name]["networks"]["lynx"]["ipv4_address"] for name in self.MACHINES]
        for name in self.own:
            self.assertEqual(self.network_of(name), self.SERVERS.get(name) or name.partition("-")[0])
        self.assertEqual(len(set(addresses)), len(addresses))
        for address in addresses:
            self.assertIn(ipaddress.ip_address(address), subnet)
            self.assertNotIn(ipaddress.ip_address(address), others)
        servers = ",".join(f"{self.address_of(server)}:7470" for server in self.SERVERS)
        for name in self.own:
            if name not in self.SERVERS:
                flags = self.flags_of(name)
                self.assertEqual(flags["--address"], self.address_of(name))
                self.assertEqual(flags["--server"], servers)
                self.assertEqual(flags["--node"], name.partition("-")[0])
        for server in self.SERVERS:
            self.assertTrue(self.flags_of(server)["--listen"].endswith(":7470"))

    def test_ports_are_published_on_loopback_alone(self):
        for name, service in self.services.items():
            for port in service.get("ports", []):
                self.assertRegex(port, r"^127\.0\.0\.1:\d+:\d+$", name)

    def test_prometheus_scrapes_every_metrics_page(self):
        self.assertIn(f"./{self.TARGETS}:/targets/lynx.json:ro", self.services["prometheus"]["volumes"])
        scraped = {(target, group["labels"]["job"]) for group in json.loads((FOLDER / self.TARGETS).read_text()) for target in group["targets"]}
        served = {(f"{self.network_of(name)}:{self.flags_of(name)['--metrics-address'].rpartition(':')[2]}", self.own[name]["command"][0]) for name in self.own}
        self.assertEqual(scraped, served)

    def test_what_is_mounted_is_there(self):
        for name, service in self.services.items():
            for volume in service.get("volumes", []):
                source = volume.replace("${LYNX_DATA:-../../examples}", "../../examples").partition(":")[0]
                if source.startswith("."):
                    self.assertTrue((FOLDER / source).resolve().exists(), f"{name}: {source}")
                else:
                    self.assertIn(source, self.compose["volumes"])
        context = (FOLDER / self.own["server"]["build"]["context"]).resolve()
        self.assertEqual(context, ROOT)
        self.assertTrue((context / self.own["server"]["build"]["dockerfile"]).exists())
        self.assertEqual({service["image"] for service in self.own.values()}, {self.own["server"]["image"]})

    def test_what_a_service_writes_is_on_a_volume(self):
        for name in self.own:
            directory = self.flags_of(name).get("--data-dir") or "/var/lib/lynx/" + name.rpartition("-")[2]
            self.assertIn(directory, [volume.split(":")[1] for volume in self.own[name]["volumes"]], name)
        self.assertEqual(len({volume.split(":")[0] for name in self.own for volume in self.own[name]["volumes"]} - {"jobs", "${LYNX_DATA"}), 4 + len(self.SERVERS))

    def test_nobody_is_root_or_may_become_it(self):
        for name in [*self.own, *self.MACHINES]:
            service = self.services[name]
            self.assertEqual(service["cap_drop"], ["ALL"])
            self.assertIn("no-new-privileges:true", service["security_opt"])
            self.assertIs(service["read_only"], True)
            self.assertEqual(service.get("user", "lynx-node"), "lynx" if name in self.SERVERS else "lynx-node")

    def test_grafana_gets_what_the_provisioning_asks_for(self):
        wanted = set()
        for path in (ROOT / "dashboards/provisioning").rglob("*.yml"):
            wanted |= set(re.findall(r"^[^#]*\$(LYNX_\w+)", path.read_text(), re.MULTILINE))
        self.assertEqual(len(wanted), 2)
        environment = self.services["grafana"]["environment"]
        self.assertLessEqual(wanted, set(environment))
        targets = [volume.split(":")[1] for volume in self.services["grafana"]["volumes"]]
        self.assertIn(environment["LYNX_DASHBOARDS"], targets)
        self.assertIn(environment["GF_PATHS_PROVISIONING"], targets)

    def test_prometheus_reads_its_configuration(self):
        if shutil.which("promtool") is None:
            self.skipTest("there is no promtool on this machine")
        with tempfile.TemporaryDirectory() as folder:
            for path in (ROOT / "dashboards/prometheus").glob("lynx_*.yml"):
                shutil.copy(path, folder)
            shutil.copy(FOLDER / self.TARGETS, f"{folder}/targets.json")
            text = (FOLDER / "prometheus.yml").read_text().replace("/etc/prometheus/", f"{folder}/").replace("/targets/*.json", f"{folder}/targets.json")
            (pathlib.Path(folder) / "prometheus.yml").write_text(text)
            said = subprocess.run(["promtool", "check", "config", f"{folder}/prometheus.yml"], capture_output=True, text=True)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def test_the_image_has_the_packages_users_and_version(self):
        text = (FOLDER / "Dockerfile").read_text()
        packages = sorted(re.findall(r"/packages/([a-z-]+)_\*\.deb", text))
        described = sorted(re.findall(r"^lynx_describe\(\w+ ([a-z-]+)", (ROOT / "cmake/Packages.cmake").read_text(), re.MULTILINE))
        self.assertEqual(packages, described)
        users = re.search(r"for user in (.*); do", (ROOT / "deploy/debian/lynx-common.postinst").read_text()).group(1).split()
        self.assertIn(re.search(r"^USER (.*)$", text, re.MULTILINE).group(1), users)
        self.assertIn(self.services["server"]["user"], users)
        version = re.search(r"VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text().partition("project(")[2]).group(1)
        self.assertEqual(self.own["server"]["image"], f"lynx:{version}")
        self.assertIn(f"-t lynx:{version} ", text)
        for script in re.findall(r"(scripts/\S+\.sh)", text):
            self.assertTrue((ROOT / script).exists(), script)


class SeveralServersTest(ComposeTest):
    """The variant with three servers, as docker compose merges it with the other file."""

    FILES = ("compose.yaml", "compose-servers.yaml")
    SERVERS = {"server": "head", "server1": "head1", "server2": "head2"}
    TARGETS = "targets-servers.json"
    FOREIGN = (*FOREIGN, "postgres")
    MACHINES = (*MACHINES, "head1", "head2")

    def test_servers_share_a_store_and_say_where_they_are(self):
        database = self.services["postgres"]
        host = database["networks"]["lynx"]["ipv4_address"]
        environment = database["environment"]
        for name in self.SERVERS:
            flags = self.flags_of(name)
            self.assertEqual(flags["--store"], f"postgresql://{environment['POSTGRES_USER']}@{host}/{environment['POSTGRES_DB']}")
            self.assertEqual(flags["--advertise"], f"{self.address_of(name)}:7470")
            self.assertIn("--insecure", flags)
        self.assertNotIn("ports", database, "it asks for no password")
        self.assertEqual(environment["POSTGRES_INITDB_ARGS"], "--encoding=UTF8 --locale=C")

    def test_people_find_all_servers(self):
        ports = [port.rpartition(":")[0] for machine in self.SERVERS.values() for port in self.services[machine]["ports"]]
        self.assertIn(f"export LYNX_SERVER={','.join(ports)}", (FOLDER / "compose-servers.yaml").read_text())
        self.assertEqual(len(set(ports)), 3)


if __name__ == "__main__":
    unittest.main()

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


class ComposeTest(unittest.TestCase):
    def setUp(self):
        self.compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
        self.services = self.compose["services"]
        self.own = {name: service for name, service in self.services.items() if name not in FOREIGN + MACHINES}

    def flags_of(self, name):
        return {word.partition("=")[0]: word.partition("=")[2] for word in self.own[name]["command"][1:]}

    def network_of(self, name):
        """The machine whose network the container `name` uses."""
        return self.own[name]["network_mode"].removeprefix("service:")

    def address_of(self, name):
        return self.services[self.network_of(name)]["networks"]["lynx"]["ipv4_address"]

    def test_services_are_those_of_two_nodes(self):
        self.assertEqual(sorted(self.services), sorted([*FOREIGN, *MACHINES, "node0-agent", "node0-worker", "node1-agent", "node1-worker", "server"]))
        for name in self.own:
            program = "lynx-" + name.rpartition("-")[2]
            self.assertEqual(self.own[name]["command"][0], program)
            known = set(re.findall(r"^  (--[a-z-]+)", help_of(program), re.MULTILINE))
            self.assertLessEqual(set(self.flags_of(name)), known)

    def test_addresses_are_the_services_own(self):
        subnet = ipaddress.ip_network(self.compose["networks"]["lynx"]["ipam"]["config"][0]["subnet"])
        others = ipaddress.ip_network(self.compose["networks"]["lynx"]["ipam"]["config"][0]["ip_range"])
        addresses = [self.services[name]["networks"]["lynx"]["ipv4_address"] for name in MACHINES]
        for name in self.own:
            self.assertEqual(self.network_of(name), "head" if name == "server" else name.partition("-")[0])
        self.assertEqual(len(set(addresses)), len(addresses))
        for address in addresses:
            self.assertIn(ipaddress.ip_address(address), subnet)
            self.assertNotIn(ipaddress.ip_address(address), others)
        for name in self.own:
            if name != "server":
                flags = self.flags_of(name)
                self.assertEqual(flags["--address"], self.address_of(name))
                self.assertEqual(flags["--server"], f"{self.address_of('server')}:7470")
                self.assertEqual(flags["--node"], name.partition("-")[0])
        self.assertTrue(self.flags_of("server")["--listen"].endswith(":7470"))

    def test_ports_are_published_on_loopback_alone(self):
        for name, service in self.services.items():
            for port in service.get("ports", []):
                self.assertRegex(port, r"^127\.0\.0\.1:\d+:\d+$", name)

    def test_prometheus_scrapes_every_metrics_page(self):
        scraped = {(target, group["labels"]["job"]) for group in json.loads((FOLDER / "targets.json").read_text()) for target in group["targets"]}
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
        self.assertEqual(len({volume.split(":")[0] for name in self.own for volume in self.own[name]["volumes"]} - {"jobs", "${LYNX_DATA"}), 5)

    def test_nobody_is_root_or_may_become_it(self):
        for name in [*self.own, *MACHINES]:
            service = self.services[name]
            self.assertEqual(service["cap_drop"], ["ALL"])
            self.assertIn("no-new-privileges:true", service["security_opt"])
            self.assertIs(service["read_only"], True)
            self.assertEqual(service.get("user", "lynx-node"), "lynx" if name == "server" else "lynx-node")

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
            shutil.copy(FOLDER / "targets.json", folder)
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


if __name__ == "__main__":
    unittest.main()

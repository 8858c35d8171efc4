"""Checks deploy/kubernetes without a cluster: its parts refer to each other and to the programs correctly."""

import functools
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
BIN = pathlib.Path(os.environ["LYNX_BIN"])
# The kinds of objects that the manifests may have: kind -> apiVersion.
KINDS = {"Namespace": "v1", "ServiceAccount": "v1", "Service": "v1", "PersistentVolumeClaim": "v1", "StatefulSet": "apps/v1",
         "DaemonSet": "apps/v1", "NetworkPolicy": "networking.k8s.io/v1"}
CAPABILITIES = {"agent": [], "server": [], "worker": ["CHOWN", "KILL", "SETGID", "SETUID"]}


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document is not None]


def read(kustomization):
    """The contents of a kustomization's resources, without its patches and images."""
    found = []
    for name in yaml.safe_load((kustomization / "kustomization.yaml").read_text())["resources"]:
        path = (kustomization / name).resolve()
        found += read(path) if path.is_dir() else documents(path.read_text())
    return found


@functools.cache
def help_of(program):
    return subprocess.run([str(BIN / program), "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def flags_of(container):
    """flag -> value that the container gives to its program."""
    return {word.partition("=")[0]: word.partition("=")[2] for word in container.get("args", [])}


class ManifestsTest(unittest.TestCase):
    def setUp(self):
        self.all = read(FOLDER)
        self.by_kind = {}
        for document in self.all:
            self.by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
        self.workloads = {**self.by_kind["StatefulSet"], **self.by_kind["DaemonSet"]}
        self.assertEqual(sorted(self.workloads), ["lynx-node", "lynx-server"])

    def containers(self):
        for workload in self.workloads.values():
            pod = workload["spec"]["template"]["spec"]
            for container in pod.get("initContainers", []) + pod["containers"]:
                yield workload, pod, container

    def selected(self, selector):
        return [name for name, workload in self.workloads.items()
                if selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()]

    def port_names(self, workload):
        containers = self.workloads[workload]["spec"]["template"]["spec"]["containers"]
        return {port["name"]: port["containerPort"] for container in containers for port in container.get("ports", [])}

    def test_documents_are_of_known_kinds_and_all_in_the_namespace(self):
        self.assertGreater(len(self.all), 8)
        names = [(document["kind"], document["metadata"]["name"]) for document in self.all]
        self.assertEqual(len(set(names)), len(names))
        for document in self.all:
            self.assertEqual(document["apiVersion"], KINDS[document["kind"]])
            if document["kind"] != "Namespace":
                self.assertEqual(document["metadata"]["namespace"], "lynx", document["metadata"])
        self.assertEqual(list(self.by_kind["Namespace"]), ["lynx"])

    def test_every_file_is_used(self):
        for folder in (FOLDER, FOLDER / "base", FOLDER / "gpu", FOLDER / "servers"):
            text = (folder / "kustomization.yaml").read_text()
            for path in folder.glob("*.yaml"):
                if path.name != "kustomization.yaml":
                    self.assertIn(path.name, text)

    def test_selectors_meet_their_pods(self):
        for name, workload in self.workloads.items():
            self.assertEqual(self.selected(workload["spec"]["selector"]["matchLabels"]), [name])
        for name, service in self.by_kind["Service"].items():
            self.assertEqual(self.selected(service["spec"]["selector"]), [name])
            for port in service["spec"]["ports"]:
                self.assertEqual(self.port_names(name)[port["targetPort"]], port["port"])
        server = self.workloads["lynx-server"]["spec"]
        self.assertIn(server["serviceName"], self.by_kind["Service"])
        self.assertEqual(server["replicas"], 1)

    def test_network_policies_name_pods_and_ports_that_there_are(self):
        policies = self.by_kind["NetworkPolicy"]
        self.assertEqual(policies["deny-all"]["spec"], {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
        opened = set()
        for policy in policies.values():
            spec = policy["spec"]
            subjects = self.selected(spec["podSelector"].get("matchLabels", {}))
            self.assertTrue(subjects)
            for way, ends in (("ingress", "from"), ("egress", "to")):
                for rule in spec.get(way, []):
                    self.assertTrue(rule.get(ends), "a rule for everybody")
                    pods = [self.selected(end["podSelector"]["matchLabels"]) for end in rule[ends] if "podSelector" in end]
                    self.assertTrue(all(pods))
                    targets = subjects if way == "ingress" else sum(pods, [])
                    for port in rule.get("ports", []):
                        if isinstance(port["port"], str):
                            self.assertTrue(targets)
                            for target in targets:
                                self.assertIn(port["port"], self.port_names(target))
                            opened.add(port["port"])
        self.assertEqual(opened, {"grpc", "metrics", "agent-metrics", "worker-metrics"})

    def test_what_pods_refer_to_is_there(self):
        for workload, pod, container in self.containers():
            account = self.by_kind["ServiceAccount"][pod["serviceAccountName"]]
            self.assertIs(account["automountServiceAccountToken"], False)
            self.assertIs(pod["automountServiceAccountToken"], False)
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            for claim in workload["spec"].get("volumeClaimTemplates", []):
                volumes[claim["metadata"]["name"]] = claim
            for mount in container["volumeMounts"]:
                self.assertIn(mount["name"], volumes)
            for volume in volumes.values():
                if "secret" in volume:
                    # The secret is not one of the manifests, because applying them again would empty it.
                    self.assertIn(f"create secret generic {volume['secret']['secretName']} ", (FOLDER / "README.md").read_text())
                    self.assertIs(volume["secret"]["optional"], True)
                    self.assertEqual(volume["secret"]["defaultMode"], 0o400)
                if "persistentVolumeClaim" in volume:
                    self.assertIn(volume["persistentVolumeClaim"]["claimName"], self.by_kind["PersistentVolumeClaim"])
            given = {variable["name"] for variable in container.get("env", [])}
            for word in container["args"]:
                self.assertLessEqual(set(re.findall(r"\$\((\w+)\)", word)), given, word)

    def test_flags_are_those_of_the_programs(self):
        for _, _, container in self.containers():
            program = pathlib.PurePath(container["command"][0]).name
            known = set(re.findall(r"^  (--[a-z-]+)", help_of(program), re.MULTILINE))
            self.assertGreater(len(known), 10)
            for flag in flags_of(container):
                self.assertIn(flag, known)

    def test_flags_agree_with_ports_mounts_and_services(self):
        for workload, pod, container in self.containers():
            flags = flags_of(container)
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            metrics = next(number for name, number in ports.items() if name.endswith("metrics"))
            self.assertEqual(flags["--metrics-address"], f"0.0.0.0:{metrics}")
            if "--listen" in flags:
                self.assertEqual(flags["--listen"], f"0.0.0.0:{ports['grpc']}")
                service = workload["spec"]["serviceName"]
                names = flags["--tls-names"].split(",")
                self.assertEqual(names[0], f"{service}.lynx", "context files have it")
                self.assertIn(f"{service}.lynx.svc", names)
            if "--server" in flags:
                host, _, port = flags["--server"].partition(":")
                self.assertIn(int(port), [p["port"] for p in self.by_kind["Service"][host]["spec"]["ports"]])
                server = self.workloads["lynx-server"]["spec"]["template"]["spec"]["containers"][0]
                self.assertIn(host, flags_of(server)["--tls-names"].split(","))
            mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
            for flag in ("--data-dir", "--identity-dir", "--data-root", "--checkpoint-root", "--join-token-file"):
                if flag in flags:
                    below = [m for m in mounts if flags[flag] == m or flags[flag].startswith(m + "/")]
                    self.assertTrue(below, flags[flag])
                    written = flag in ("--data-dir", "--identity-dir", "--checkpoint-root")
                    self.assertEqual(mounts[below[0]].get("readOnly", False), not written, flag)
            if "--stop-grace-ms" in flags:
                self.assertGreater(pod["terminationGracePeriodSeconds"] * 1000, int(flags["--stop-grace-ms"]) + 10_000)
                self.assertIn("--stop-ranks-on-exit", flags)
        worker = self.workloads["lynx-node"]["spec"]["template"]["spec"]["containers"][1]
        server = self.workloads["lynx-server"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(flags_of(worker)["--checkpoint-root"], flags_of(server)["--data-dir"] + "/jobs")

    def test_containers_have_no_more_rights_than_they_need(self):
        for workload, pod, container in self.containers():
            context = container["securityContext"]
            self.assertIs(context["allowPrivilegeEscalation"], False)
            self.assertIs(context["readOnlyRootFilesystem"], True)
            self.assertEqual(context["capabilities"]["drop"], ["ALL"])
            self.assertEqual(sorted(context["capabilities"].get("add", [])), CAPABILITIES[container["name"]])
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertFalse(set(pod) & {"hostNetwork", "hostPID", "hostIPC"})
            root = context.get("runAsUser", pod["securityContext"].get("runAsUser")) == 0
            self.assertEqual(root, workload["kind"] == "DaemonSet")
            if container["name"] == "worker":
                self.assertEqual(flags_of(container)["--job-user"], "lynx")

    def test_prometheus_finds_all_by_their_services(self):
        jobs = {job["job_name"]: job for job in yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]}
        self.assertEqual(sorted(jobs), ["lynx-agent", "lynx-server", "lynx-worker"])
        asked = {name: f"{sd['names'][0]}:{sd['port']}" for name, job in jobs.items() for sd in job.get("dns_sd_configs", [])}
        asked |= {name: config["targets"][0] for name, job in jobs.items() for config in job.get("static_configs", [])}
        services = {service: {port["name"]: port["port"] for port in found["spec"]["ports"]} for service, found in self.by_kind["Service"].items()}
        self.assertEqual(asked, {"lynx-server": f"lynx-server.lynx:{services['lynx-server']['metrics']}",
                                 "lynx-agent": f"lynx-node.lynx:{services['lynx-node']['agent-metrics']}",
                                 "lynx-worker": f"lynx-node.lynx:{services['lynx-node']['worker-metrics']}"})
        self.assertEqual(self.by_kind["Service"]["lynx-node"]["spec"]["clusterIP"], "None", "or its name would be one address")
        if shutil.which("promtool") is None:
            self.skipTest("promtool is not installed: see scripts/packages.txt")
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "dashboards/prometheus", folder, dirs_exist_ok=True)
            shutil.copy(FOLDER / "prometheus.yml", folder)
            done = subprocess.run(["promtool", "check", "config", f"{folder}/prometheus.yml"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_kustomize_renders_them(self):
        if shutil.which("kubectl") is None:
            self.skipTest("there is no kubectl on this machine")
        for folder, gpus in ((FOLDER, 0), (FOLDER / "gpu", 2)):
            made = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=120,
                                  env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
            self.assertEqual(made.returncode, 0, made.stderr)
            names = {(d["kind"], d["metadata"]["name"]) for d in documents(made.stdout)}
            self.assertEqual(names, {(d["kind"], d["metadata"]["name"]) for d in self.all})
            containers = [c for d in documents(made.stdout) if "template" in d.get("spec", {}) for c in d["spec"]["template"]["spec"]["containers"]]
            self.assertEqual(len({c["image"] for c in containers}), 1)
            self.assertNotIn("lynx", {c["image"] for c in containers})
            variables = [v["name"] for c in containers for v in c.get("env", [])]
            self.assertEqual(variables.count("NVIDIA_VISIBLE_DEVICES"), gpus)
            self.assertEqual(variables.count("NODE_NAME"), 2)

    def test_the_image_has_the_user_and_the_libraries(self):
        text = (FOLDER / "Dockerfile").read_text()
        user = self.workloads["lynx-server"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
        self.assertIn(f"useradd --uid {user} --gid {user} --no-create-home lynx", text)
        packages = set(re.search(r"--no-install-recommends((?: |\\\n|[a-z0-9.+-])+)", text.split("bookworm-slim")[1]).group(1).replace("\\", " ").split())
        programs = re.search(r"ninja -C build (.*)", text).group(1).split()
        read_elf = subprocess.run(["readelf", "-d", *(str(BIN / program) for program in programs)], capture_output=True, text=True, check=True)
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", read_elf.stdout))
        self.assertGreater(len(needed), 10)
        owners = subprocess.run(["dpkg", "-S", *(f"*/{library}" for library in needed)], capture_output=True, text=True).stdout
        packages |= {"libc6", "libstdc++6", "libgcc-s1"}
        there = {line.rpartition("/")[2] for line in owners.splitlines() if line.partition(":")[0] in packages}
        self.assertLessEqual(needed, there)


class ThreeServersTest(unittest.TestCase):
    """The variant with three servers. Its patches replace parts of the base."""

    def setUp(self):
        self.base = {(d["kind"], d["metadata"]["name"]): d for d in read(FOLDER)}
        folder = FOLDER / "servers"
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
        self.patches = [d for patch in kustomization["patches"] for d in documents((folder / patch["path"]).read_text())]
        self.more = documents((folder / "service.yaml").read_text())
        self.server, self.nodes = (next(d for d in self.patches if d["kind"] == kind) for kind in ("StatefulSet", "DaemonSet"))

    def container(self, document, name):
        return next(c for c in document["spec"]["template"]["spec"]["containers"] if c["name"] == name)

    def test_patches_meet_the_base(self):
        for patch in self.patches:
            original = self.base[(patch["kind"], patch["metadata"]["name"])]
            for container in patch["spec"]["template"]["spec"]["containers"]:
                known = set(re.findall(r"^  (--[a-z-]+)", help_of(pathlib.PurePath(self.container(original, container["name"])["command"][0]).name),
                                       re.MULTILINE))
                self.assertLessEqual(set(flags_of(container)), known)
                before = flags_of(self.container(original, container["name"]))
                changed = {"--server", "--tls-names", "--advertise", "--store"}
                self.assertEqual({k: v for k, v in flags_of(container).items() if k not in changed}, {k: v for k, v in before.items() if k not in changed})
                given = {variable["name"] for variable in container.get("env", self.container(original, container["name"]).get("env", []))}
                for word in container["args"]:
                    self.assertLessEqual(set(re.findall(r"\$\((\w+)\)", word)), given, word)

    def test_nodes_name_every_server_by_a_name_of_its_own(self):
        spec = self.server["spec"]
        service = next(d for d in self.more if d["kind"] == "Service")
        self.assertEqual(spec["serviceName"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertIs(service["spec"]["publishNotReadyAddresses"], True, "one that stands by is not ready, and nodes ask it who leads")
        self.assertEqual(service["spec"]["selector"], self.base[("Service", "lynx-server")]["spec"]["selector"])
        port = next(p["port"] for p in service["spec"]["ports"] if p["name"] == "grpc")
        flags = flags_of(self.container(self.server, "server"))
        names = [flags["--advertise"].replace("$(POD_NAME)", f"lynx-server-{i}") for i in range(spec["replicas"])]
        self.assertEqual(names, [f"lynx-server-{i}.{spec['serviceName']}.lynx:{port}" for i in range(3)])
        for name in ("agent", "worker"):
            self.assertEqual(flags_of(self.container(self.nodes, name))["--server"], ",".join(names))
        tls = flags["--tls-names"].split(",")
        self.assertEqual(f"{tls[0]}:{port}", flags["--advertise"])
        before = flags_of(self.container(self.base[("StatefulSet", "lynx-server")], "server"))["--tls-names"].split(",")
        self.assertLessEqual(set(before), set(tls))

    def test_a_server_that_stands_by_is_neither_waited_for_nor_ended(self):
        self.assertEqual(self.server["spec"]["podManagementPolicy"], "Parallel")
        self.assertEqual(self.server["spec"]["updateStrategy"]["type"], "OnDelete")
        probes = self.container(self.server, "server")
        self.assertEqual(probes["startupProbe"]["httpGet"]["path"], "/healthz")
        base = self.container(self.base[("StatefulSet", "lynx-server")], "server")
        self.assertEqual(base["livenessProbe"]["httpGet"]["path"], "/healthz")
        self.assertEqual(base["readinessProbe"]["httpGet"]["path"], "/readyz", "so that the Service leads to the one that leads")

    def test_the_store_is_reached_with_a_password_from_a_secret(self):
        container = self.container(self.server, "server")
        secret = next(v["valueFrom"]["secretKeyRef"] for v in container["env"] if v["name"] == "PGPASSWORD")
        self.assertIn(f"create secret generic {secret['name']} --from-file={secret['key']}=", (FOLDER / "README.md").read_text())
        host = re.fullmatch(r"postgresql://lynx@[\w-]+\.([\w-]+)/lynx", flags_of(container)["--store"])
        policy = next(d for d in self.more if d["kind"] == "NetworkPolicy")["spec"]
        self.assertEqual(policy["podSelector"]["matchLabels"], self.base[("Service", "lynx-server")]["spec"]["selector"])
        reached = {end["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]: {p["port"] for p in rule["ports"]}
                   for rule in policy["egress"] for end in rule["to"]}
        self.assertEqual(reached, {host.group(1): {5432}, "kube-system": {53}})

    def test_kustomize_renders_it(self):
        if shutil.which("kubectl") is None:
            self.skipTest("there is no kubectl on this machine")
        made = subprocess.run(["kubectl", "kustomize", str(FOLDER / "servers")], capture_output=True, text=True, timeout=120,
                              env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
        self.assertEqual(made.returncode, 0, made.stderr)
        server = next(d for d in documents(made.stdout) if d["kind"] == "StatefulSet")
        self.assertEqual(server["spec"]["replicas"], 3)
        self.assertIn("readinessProbe", self.container(server, "server"))
        self.assertEqual(self.container(server, "server")["startupProbe"]["failureThreshold"], 150, "the rest of the probe stays")


class ProbesTest(unittest.TestCase):
    """Starts the programs and sends them the requests that the manifests' probes send."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lynx-probes-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.paths = {}
        for document in read(FOLDER):
            for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
                probes = [value["httpGet"]["path"] for key, value in container.items() if key.endswith("Probe")]
                self.paths[pathlib.PurePath(container["command"][0]).name] = sorted(set(probes))

    def start(self, program, *flags):
        log = open(self.directory / f"{program}.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(BIN / program), "--data-dir", str(self.directory / program), "--metrics-address", "127.0.0.1:0", *flags],
                                   stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, condition, what):
        for _ in range(2400):
            value = condition()
            if value:
                return value
            time.sleep(0.05)
        self.fail(f"waited two minutes for {what}: " + "".join(path.read_text() for path in self.directory.glob("*.log")))

    def get(self, port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def check(self, program, port):
        """All probes succeed, and a path that no probe uses does not exist."""
        self.assertEqual(self.paths[program], ["/healthz", "/readyz"])
        for path in self.paths[program]:
            self.wait_for(lambda: self.get(port, path) == (200, "ok\n"), f"{program}{path}")
        self.assertEqual(self.get(port, "/nothing")[0], 404)

    def start_server(self, listen):
        self.start("lynx-server", "--listen", listen)
        address = self.directory / "lynx-server/server.address"
        self.wait_for(address.exists, "a server that listens")
        return (self.directory / "lynx-server/metrics.address").read_text().strip().rpartition(":")[2]

    def test_the_server_answers_them(self):
        self.check("lynx-server", self.start_server("127.0.0.1:0"))

    def test_the_nodes_programs_answer_them(self):
        ports = {}
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        for program in ("lynx-agent", "lynx-worker"):
            self.start(program, "--server", address, "--node", "n0")
            log = self.directory / f"{program}.log"
            ports[program] = self.wait_for(lambda: re.search(r"metrics on port (\d+)", log.read_text()), f"{program}'s pages").group(1)
            # If the server cannot be reached, a daemon must say so, but need not be restarted.
            self.assertEqual(self.get(ports[program], "/healthz"), (200, "ok\n"))
            self.assertEqual(self.get(ports[program], "/readyz")[0], 503)
        self.start_server(address)
        for program, port in ports.items():
            self.check(program, port)


if __name__ == "__main__":
    unittest.main()

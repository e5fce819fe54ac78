"""The model servers. TorchServe, which serves the example model, runs on a Python that has torch
(Debian's python3-torch). Each of the others has an environment of its own, which is made once, and
in which a program of `served/` runs.

Rule: Java is started directly, because TorchServe's own command starts the serving process in the
background and does not tell its id. Another model server is started only if it is asked for by
name, and always as a local process. Owner: `stack`.
"""

import hashlib
import http.client
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from realstack import layout
from realstack.prerequisites import run, torch_python, venv_python
from realstack.service import Launch, NotReady, Ports

SETTINGS = layout.ROOT / "deploy" / "docker" / "torchserve"
HANDLERS = layout.ROOT / "consumers" / "penstock" / "tools" / "handlers"
REQUIREMENTS = SETTINGS / "requirements.txt"
MODEL = "rows"
TORCHVISION = "torchvision"
# TorchServe's management API, in the folder of the service. Only the user who started the service
# can connect.
SOCKET = "management"
FEATURES = 16


def _fingerprint(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


def _mend_scripts(binaries: Path) -> None:
    """Correct the first lines of an environment's scripts. These lines name the folder in which the
    environment was built, but the environment was moved to another folder since.
    """
    for script in binaries.iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        first, newline, rest = script.read_bytes().partition(b"\n")
        ours = f"#!{binaries / 'python'}".encode()
        if first.startswith(b"#!") and first.endswith(b"/bin/python") and first != ours:
            script.write_bytes(ours + newline + rest)


def archive_fingerprint() -> str:
    """A fingerprint of the handler and the model. When it changes, a running server is out
    of date.
    """
    return _fingerprint(HANDLERS / "rows_handler.py", HANDLERS / "rows_model.py", REQUIREMENTS)


def _install(folder: Path) -> None:
    venv = [torch_python(), "-m", "venv", "--system-site-packages", "--clear"]
    run([*venv, str(folder)], what="making an environment for TorchServe", cwd=folder)
    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet"]
    run([*pip, "-r", str(REQUIREMENTS)], what="installing TorchServe", cwd=folder)


class TorchServe:
    name = "torchserve"

    @property
    def environment(self) -> Path:
        return layout.cache() / f"torchserve-{_fingerprint(REQUIREMENTS)}"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def store(self) -> Path:
        return layout.cache() / f"archive-{archive_fingerprint()}"

    def build(self) -> None:
        layout.build_once(self.environment, _install)
        _mend_scripts(self.environment / "bin")
        layout.build_once(self.store, self._archive)

    def add_torchvision(self) -> None:
        """Put torchvision beside torch, for image models. Debian's package fits Debian's torch,
        which PyPI's do not; it is unpacked into the environment, so nobody has to be root.
        """
        packages = next(self.environment.glob("lib/python3*/site-packages"))

        def unpack(folder: Path) -> None:
            what = "fetching torchvision"
            run(["apt-get", "download", "python3-torchvision"], what=what, cwd=folder)
            (package,) = folder.glob("*.deb")
            run(["dpkg", "-x", package.name, "all"], what="unpacking torchvision", cwd=folder)
            modules = folder / "all" / "usr" / "lib" / "python3" / "dist-packages" / "torchvision"
            for entry in modules.iterdir():
                entry.rename(folder / entry.name)
            shutil.rmtree(folder / "all")
            package.unlink()

        layout.build_once(packages / TORCHVISION, unpack)

    def _archive(self, folder: Path) -> None:
        builder = [str(self.python), str(HANDLERS / "rows_model.py"), str(folder)]
        run(builder, what="building the model archive", cwd=folder)

    def configure(self, folder: Path, ports: Ports) -> Launch:
        temporary = folder / "tmp"  # the workers make their sockets here
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        # A server that was killed leaves its socket, and the next one could not listen there.
        (folder / SOCKET).unlink(missing_ok=True)
        addresses = {
            "inference_address": f"http://127.0.0.1:{ports['torchserve']}",
            "management_address": f"unix:{folder / SOCKET}",
            "enable_model_api": "true",
            "allowed_urls": "file://.*",
            "metrics_address": f"http://127.0.0.1:{ports['torchserve_metrics']}",
            "grpc_inference_port": ports["torchserve_grpc"],
            "grpc_management_port": ports["torchserve_grpc_management"],
            "initial_worker_port": ports["torchserve_worker"],
            "model_store": self.store,
        }
        settings = (SETTINGS / "config.properties").read_text()
        vmargs = next(
            line.removeprefix("vmargs=").split()
            for line in settings.splitlines()
            if line.startswith("vmargs=")
        )
        config = folder / "config.properties"
        config.write_text(
            settings + "".join(f"{key}={value}\n" for key, value in addresses.items())
        )
        packages = next(self.environment.glob("lib/python3*/site-packages"))
        argv = ["java", *vmargs, f"-Dmodel_server_home={packages}", f"-Djava.io.tmpdir={temporary}"]
        argv += [f"-Dlog4j.configurationFile=file://{SETTINGS}/log4j2.xml"]
        argv += ["-cp", f"{packages}/ts/frontend/*", "org.pytorch.serve.ModelServer"]
        argv += ["--python", str(self.python), "-f", str(config), "-s", str(self.store), "-ncs"]
        variables = dict.fromkeys(("TMPDIR", "TEMP"), str(temporary))
        variables |= dict.fromkeys(("LOG_LOCATION", "METRICS_LOCATION"), str(folder))
        # TorchServe's Python worker must find the packages of its environment and no others.
        return Launch(argv, variables | {"PYTHONPATH": ""})

    def probe(self, ports: Ports) -> None:
        predict(self.name, ports[self.name], f"/predictions/{MODEL}", [[0.5] * FEATURES])


def predict(name: str, port: int, path: str, body: object) -> None:
    """Ask a model server once. Raises `NotReady` unless the answer has a label."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NotReady(f"{name} does not answer: {error}") from error
    finally:
        connection.close()
    if response.status != 200 or b"label" not in answer:
        raise NotReady(f"{name} answers {response.status}: {answer[:200]!r}")


SERVED = Path(__file__).with_name("served")
_ROW = [0.5] * FEATURES
_TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, FEATURES], "data": _ROW}
_LABEL = {"type": "object", "properties": {"label": {"type": "boolean"}}, "required": ["label"]}
_CHAT = {
    "messages": [{"role": "user", "content": "?"}],
    "max_tokens": 64,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": _LABEL}},
}


@dataclass(eq=False)
class ModelServer:
    """One model server. `ports`: in the order of its program's arguments. `path`, `body`: a request
    to the model that is loaded last. When this model answers, all models are ready.
    """

    name: str
    ports: tuple[str, ...]
    path: str = "/v2/models/strict/infer"
    body: object = field(default_factory=lambda: {"id": "probe", "inputs": [_TENSOR]})

    @property
    def environment(self) -> Path:
        requirements = (SERVED / f"{self.name}.txt").read_bytes()
        return layout.cache() / f"{self.name}-{hashlib.sha256(requirements).hexdigest()[:12]}"

    def build(self, within_s: float | None = None) -> None:
        """Download and build. With `within_s`: give up after that time."""

        def make(folder: Path) -> None:
            venv = [venv_python(), "-m", "venv", "--clear", str(folder)]
            run(venv, what=f"making an environment for {self.name}", cwd=folder)
            pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--no-compile"]
            pip += ["-r", str(SERVED / f"{self.name}.txt")]
            what = f"installing {self.name}, up to 450 MB"
            run(pip, what=what, cwd=folder, within_s=within_s)

        # The environment is moved after it is made. Its programs run nevertheless, because they are
        # started as modules, and not by the environment's scripts.
        layout.build_once(self.environment, make)

    def configure(self, folder: Path, ports: Ports) -> Launch:
        program = str(SERVED / f"{self.name}_server.py")
        chosen = [str(ports[port]) for port in self.ports]
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        paths = f"{HANDLERS}:{SERVED}"
        return Launch(
            [str(self.environment / "bin" / "python"), program, *chosen],
            {"PYTHONPATH": paths, "TMPDIR": str(temporary), "HOME": str(folder)},
        )

    def probe(self, ports: Ports) -> None:
        predict(self.name, ports[self.name], self.path, self.body)


MODEL_SERVERS = (
    ModelServer("triton", ("triton", "triton_grpc", "triton_metrics")),
    ModelServer("mlserver", ("mlserver", "mlserver_grpc", "mlserver_metrics")),
    ModelServer("kserve", ("kserve", "kserve_grpc")),
    # A plain JSON server: it takes an array of rows and answers an array of answers.
    ModelServer("litserve", ("litserve",), "/strict", [_ROW]),
    # It sees, but has random weights: a schema makes its answers JSON.
    ModelServer("llamacpp", ("llamacpp",), "/v1/chat/completions", _CHAT),
)

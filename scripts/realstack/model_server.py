"""The model servers beside TorchServe. Each has an environment of its own, which is made once. A
program of `served/` runs in this environment.

Rule: a model server is started only if it is asked for by name, and always as a local process.
Owner: `stack`.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from realstack import layout
from realstack.prerequisites import run, venv_python
from realstack.service import Launch, Ports
from realstack.torchserve import FEATURES, HANDLERS, predict

SERVED = Path(__file__).with_name("served")
_ROW = [0.5] * FEATURES
_TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, FEATURES], "data": _ROW}


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
)

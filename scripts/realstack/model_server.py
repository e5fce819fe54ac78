"""What the model servers beside TorchServe have in common: each has its own environment, made once,
in which a program of `served/` runs.

Rule: they are started only if asked for by name, and always as local processes. Owner: `stack`.
"""

import hashlib
from pathlib import Path

from realstack import layout
from realstack.prerequisites import run, venv_python
from realstack.service import Launch, Ports
from realstack.torchserve import FEATURES, HANDLERS, predict

SERVED = Path(__file__).with_name("served")


class ModelServer:
    """A subclass says its `name`, its ports, and how the example model is asked."""

    name: str
    # In the order of the program's arguments.
    ports: tuple[str, ...]
    path = "/v2/models/{model}/infer"
    # The model that is loaded last: when it answers, all are ready.
    model = "strict"

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

        # An environment can be moved if its scripts are run as modules.
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

    def body(self) -> object:
        row = [0.5] * FEATURES
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, FEATURES], "data": row}
        return {"id": "probe", "inputs": [tensor]}

    def probe(self, ports: Ports) -> None:
        predict(self.name, ports[self.name], self.path.format(model=self.model), self.body())

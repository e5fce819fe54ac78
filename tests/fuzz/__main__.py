"""`python -m tests.fuzz TARGET [FOLDER] [-max_total_time=600 ...]`: coverage-guided, by hand.

Needs `pip install atheris` in an environment that has this project's own packages; the rest of the
command line is libFuzzer's. A finding is printed and kept as `crash-*`: it becomes a case of
`tests/corpus/`. `list` prints the targets; `seeds FOLDER` writes the beginnings to start from.
"""

import sys
from pathlib import Path

from tests.fuzz.seeds import SEEDS


def main() -> None:
    target = sys.argv[1] if len(sys.argv) > 1 else "list"
    if target == "seeds":
        for name, seeds in SEEDS.items():
            folder = Path(sys.argv[2]) / name
            folder.mkdir(parents=True, exist_ok=True)
            for number, seed in enumerate(seeds):
                (folder / f"seed-{number}").write_bytes(seed)
        return
    if target == "list":
        sys.stdout.write("\n".join(SEEDS) + "\n")
        return
    import atheris  # type: ignore[import-untyped]  # noqa: PLC0415

    with atheris.instrument_imports(include=["penstock", "schemas"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()

"""Untrusted texts: image lists and configuration files."""

from __future__ import annotations

import random
from pathlib import Path

from support.fuzzing import NUMBERS, TEXTS, Reading, Variants, mutated_bytes, mutated_value

_CLASSES = 5


def image_lists(folder: Path) -> Variants:
    """Image lists: everything that is read is below the root, whatever the list says."""
    from ghost_ray.sources import map_labels, open_source

    (folder / "root").mkdir()
    (folder / "secret.jpg").write_bytes(b"outside of the root")
    names = [f"{name}/{number}.jpg" for name in ("ant", "bee") for number in range(10)]
    for name in names:
        (folder / "root" / name).parent.mkdir(exist_ok=True)
        (folder / "root" / name).write_bytes(name.encode())
    lines = [f"{name} {number % _CLASSES}" for number, name in enumerate(names)]
    where = folder / "images.txt"
    paths = (
        *TEXTS,
        "../secret.jpg",
        str(folder / "secret.jpg"),
        "ant/../../secret.jpg",
        "ant/./../../secret.jpg",
        "ant//0.jpg",
        "..\\secret.jpg",
        "%2e%2e/secret.jpg",
        "file:../secret.jpg",
        "ant",
        "ant/",
        "\x85ant/0.jpg",
        "ant/0.jpg\u2029x",
    )

    def make(rng: random.Random) -> Reading:
        content = list(lines)
        for _ in range(rng.randint(0, 3)):
            place = rng.randrange(len(content))
            path, label = content[place].rsplit(" ", 1) if " " in content[place] else (content[place], "")
            content[place] = rng.choice(
                (
                    f"{rng.choice(paths)} {label}",
                    f"{path} {rng.choice((*NUMBERS, *TEXTS))}",
                    f"{path}\t{rng.choice(TEXTS)}",
                    rng.choice(paths),
                    content[place] * rng.choice((2, 2000)),
                    f"{path} {label} {label}",
                )
            )
        joint = rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\n\n", "\0", "\u2028"))
        data = joint.join(content).encode(rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16")), "surrogatepass")
        if rng.random() < 0.4:
            data = mutated_bytes(data, rng)
        where.write_bytes(data)
        return read

    def read() -> None:
        source = open_source(str(where), root=str(folder / "root"))
        for key in source.preview.items["key"].to_pylist():
            assert key.isprintable(), key
            assert not key.startswith("/"), key
            assert ".." not in key.split("/"), key
        for image in source.reader.read(source.preview.items.slice(0, 30)):
            assert image.data != b"outside of the root"
        map_labels(source, _CLASSES).apply(source.preview.items["label"])

    return make


_YAML = """\
registry: registry
network: {model: resnet18, weights: w.safetensors, actors: "1:8", gpus_per_actor: 0.5}
fit: {data: train, classes: classes.json, limit: 10}
known: {data: test}
unknown: {violet: {data: violet}, green: {data: green, format: flat}}
audit: {alpha: 0.05, family: all}
evaluate: {methods: [ghost, msp], draws: 2}
accept_known: 0.95
gates: {max_rejected_fraction: 0.1, max_accuracy_drop: null}
keep: 5
"""
_LAUGHS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9) if n else 'lol'}]\n" for n in range(12))
_MERGES = "".join(
    f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}\n" if n else "m0: &m0 {a: 1}\n" for n in range(12)
)
_YAML_SNIPPETS = (
    _LAUGHS,
    _LAUGHS + "keep: *l11\n",
    _MERGES,
    "fit: &f [*f]\n",
    "fit: &f {data: *f}\n",
    "unknown: &u {a: *u}\n",
    "keep: !!python/object/apply:os.system ['exit 1']\n",
    "keep: !!python/name:os.system\n",
    "keep: !!timestamp x\n",
    "keep: !!int ''\n",
    "keep: !!float ''\n",
    "keep: !!bool maybe\n",
    "keep: !!binary '%'\n",
    "keep: !!set {a, b}\n",
    "keep: !!omap [a: 1]\n",
    "keep: !!pairs [1]\n",
    "? [a, b]\n: 1\n",
    "? {a: 1}\n: 1\n",
    "1: 2\n",
    "null: 1\n",
    "true: 1\n",
    "---\n",
    "...\n",
    "%YAML 9.9\n---\n",
    "%TAG ! x\n---\n",
    "\tkeep: 1\n",
    "keep: 0x" + "f" * 5000 + "\n",
    "keep: " + "9" * 5000 + "\n",
    "keep: 1:8\n",
    "keep: 190:20:30.15\n",
    "keep: .nan\n",
    "keep: .inf\n",
    "keep: 2001-99-99\n",
    "keep: 1e999\n",
    "keep: *nowhere\n",
    "keep: !x y\n",
    "keep: |\n",
    "keep: >9\n",
    "keep: '\n",
    'keep: "\\ud800"\n',
    'keep: "\\x00"\n',
    "fit: " + "[" * 500 + "\n",
    "fit: " + "{a: " * 500 + "\n",
    "- " * 500 + "\n",
    "keep: =\n",
    "<<: 1\n",
    "<<: [1, 2]\n",
    "keep: !!merge <<\n",
    "keep: [*a, &a 1]\n",
    "fit: [" + "a, " * 2000 + "]\n",
    "keep: &k\n",
)


def configurations(folder: Path) -> Variants:
    """The YAML that ``--config`` and ``--classes`` take, read into the settings of every command."""
    import yaml

    from ghost_ray.cli.commands import COMMANDS
    from ghost_ray.config import build
    from ghost_ray.config.refit_settings import RefitConfig
    from ghost_ray.sources import load_classes

    where = folder / "settings.yaml"
    kinds = [RefitConfig] * 3 * len(COMMANDS) + [command.settings for command in COMMANDS.values()]
    base = yaml.safe_load(_YAML)

    def make(rng: random.Random) -> Reading:
        text = _YAML
        if rng.random() < 0.5:
            text = yaml.dump(mutated_value(base, rng), Dumper=yaml.SafeDumper, allow_unicode=rng.random() < 0.5)
        if rng.random() < 0.4:
            lines = text.splitlines(keepends=True)
            place = rng.randrange(len(lines) + 1)
            text = "".join([*lines[:place], rng.choice(_YAML_SNIPPETS), *lines[place:]])
        data = text.encode(rng.choice(("utf-8",) * 9 + ("utf-16",)), "surrogatepass")
        if rng.random() < 0.3:
            data = mutated_bytes(data, rng)
        where.write_bytes(data)
        if rng.random() < 0.1:
            return lambda: load_classes(str(where))
        kind = rng.choice(kinds)
        return lambda: build(kind, {}, str(where))

    return make

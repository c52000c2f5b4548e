"""The jobs of one network: extract what is missing, fit, audit, and evaluate the cells that are missing.

Every job's result is whole or absent and says what it was made from, so a study that was killed, or given one more
network, set or method, finds what still holds and does the rest.
"""

from __future__ import annotations

import re
from typing import TypeVar

from ghost_ray.config import AuditConfig, EvaluateConfig, ExtractConfig, FitConfig, RayJobConfig
from ghost_ray.config.study_settings import StudyConfig
from ghost_ray.errors import InputError
from ghost_ray.files import MANIFEST, folders_in, join, kind_of, read_json, remove_tree
from ghost_ray.files.manifest import Manifest, read_manifest
from ghost_ray.jobs.audit.audit_job import AuditManifest
from ghost_ray.jobs.evaluate import EvaluationManifest, run_plan
from ghost_ray.jobs.evaluate.earlier import look_back
from ghost_ray.jobs.evaluate.evaluate_plan import ALL, make_plan
from ghost_ray.jobs.fingerprints import digest, software_digest, store_name, weights_digest
from ghost_ray.jobs.study.study_plan import (
    FIT,
    KNOWN,
    WORK,
    DataSet,
    given_stores,
    remember,
    remembered_as,
    roles_of,
    to_extract,
    unknown_role,
)
from ghost_ray.model import ModelManifest
from ghost_ray.progress import say
from ghost_ray.store import Store

M = TypeVar("M", bound=Manifest)
Pair = tuple[str, str]  # method, unknown set
EVALUATION = "evaluation"
_NAME = re.compile(rf"{EVALUATION}(-[1-9][0-9]*)?")
KEPT = "kept"  # fits and a record of the scores of the knowns, per network


class NetworkJobs:
    """One network of a study.

    Parameters
    ----------
    data : dict of role to DataSet
        The images of the roles that are extracted.
    """

    def __init__(self, config: StudyConfig, name: str, data: dict[str, DataSet]) -> None:
        self._config, self.name, self._data = config, name, data
        self._network = config.networks[name]
        self.folder = join(config.out, name)
        self._ray = config.model_dump(include=set(RayJobConfig.model_fields))
        self.places: dict[str, str] = {}  # of the stores, by role

    def locate(self) -> list[str]:
        """Settle where every store is; returns the roles that have to be extracted."""
        self.places = given_stores(self._network)
        images = to_extract(self._config, self.name)
        if not images:
            return []
        weights, software = weights_digest(self._network, join(self._config.out, WORK)), software_digest()
        narrowed = self._narrowed()
        names = {}
        for role in images:
            made_from = self._data[role].digest
            if role != FIT and narrowed:
                # What the head is narrowed to is seen in what the fit rests on.
                made_from = digest([made_from, narrowed])
            names[role] = store_name(role, weights, self._network, made_from, software)
            self.places[role] = join(self.folder, "stores", names[role])
        remember(self._config, {remembered_as(self._network, self._data[role]): names[role] for role in images})
        return [role for role in images if not _is_done(self.places[role])]

    def _narrowed(self) -> str | None:
        """What the other heads are narrowed by; None where the fit's head is whole."""
        if FIT in self.places:
            fit = Store.open(self.places[FIT], "stores.fit")
            return None if fit.manifest.network.restricted_to is None else fit.fingerprint()
        restricts = self._config.fit is not None and self._config.fit.restrict
        return self._data[FIT].digest if restricts else None

    def extract(self, role: str) -> None:
        """Make one store from images."""
        from ghost_ray.jobs.extract import run

        say(f"study: {self.name}: extract {role}")
        options = self._data[role].section.model_dump()
        options |= self._network.model_dump(exclude={"stores"}) | self._ray
        if role != FIT and self._narrowed() is not None:
            options |= {"restrict": False, "restrict_like": self.places[FIT]}
        run(ExtractConfig(out=self.places[role], unknown=role not in (FIT, KNOWN), **options))

    def conclude(self) -> None:
        """Fit, audit and evaluate what has not been yet."""
        self._stores = {role: Store.open(self.places[role], role) for role in roles_of(self._config, self.name)}
        self._prints = {role: store.fingerprint() for role, store in self._stores.items()}
        self._fit()
        self._audit()
        self._evaluate()

    def _fit(self) -> None:
        place = join(self.folder, "model")
        made = _manifest(place, ModelManifest)
        if made is not None and _fingerprints(made) == [self._prints[FIT]]:
            return
        from ghost_ray.jobs.fit import run

        say(f"study: {self.name}: fit")
        run(FitConfig(store=self.places[FIT], out=place, overwrite=True, **self._ray))

    def _audit(self) -> None:
        place = join(self.folder, "audit")
        options = self._config.audit.model_dump()
        made = _manifest(place, AuditManifest)
        if (
            made is not None
            and _fingerprints(made) == [self._prints[FIT]]
            and all(made.config.get(option) == value for option, value in options.items())
        ):
            return
        from ghost_ray.jobs.audit import run

        say(f"study: {self.name}: audit")
        run(AuditConfig(store=self.places[FIT], out=place, overwrite=True, **options, **self._ray))

    def _evaluate(self) -> None:
        wanted = self.cells()
        made = self.evaluations()
        # Of other stores, settings or code: replaced by new ones, and what is left of them removed after these.
        old = [name for name in self._own() if name not in made and self._is_evaluation(name)]
        covered = {cell for cells in made.values() for cell in cells}
        evaluated = {method for method, _ in covered}
        left: dict[str, list[str]] = {}
        for method, unknown in wanted:
            if (method, unknown) not in covered:
                left.setdefault(method, []).append(unknown)
        # Methods that lack the same sets are evaluated together: they share each reading of the rows.
        together: dict[tuple[str, ...], list[str]] = {}
        for method, sets in left.items():
            together.setdefault(tuple(sets), []).append(method)
        for lacking, methods in together.items():
            name = old.pop(0) if old else self._free_name()
            config = self._evaluation(list(lacking), methods, join(self.folder, name))
            plan = make_plan(config)
            earlier = look_back(config, plan, join(self._config.out, WORK, KEPT, self.name), self.folder)
            again = ", ".join(method for method in earlier.fitted_again() if method in evaluated)
            remark = f"; fitted again: {again}" if again else ""
            say(f"study: {self.name}: evaluate {', '.join(methods)} on {', '.join(lacking)}{remark}")
            run_plan(config, plan, earlier)
        for name in old:
            remove_tree(join(self.folder, name))

    def cells(self) -> list[Pair]:
        """The methods and sets that the study asks for; of ``all``, the methods that the network allows."""
        sets = self._config.sets_of(self.name)
        methods = list(self._config.methods)
        if ALL in methods:
            methods = list(make_plan(self._evaluation(sets, methods, self.folder)).scorers)
        return [(method, unknown) for unknown in sets for method in methods]

    def evaluations(self) -> dict[str, list[Pair]]:
        """The evaluations of these very stores and settings by folder, with the cells of each."""
        config = self._config
        found = {}
        for name in self._own():
            made = _manifest(join(self.folder, name), EvaluationManifest)
            if made is None:
                continue
            settings = {"draws": config.draws, "draw_size": config.draw_size, "seed": config.seed}
            prints = _fingerprints(made)
            if len(prints) != 1 + len(made.sets):
                continue
            fit, *others = prints
            by_set = dict(zip(made.sets, others, strict=True))
            if fit != self._prints[FIT] or by_set.get(KNOWN) != self._prints[KNOWN]:
                continue
            if any(made.config.get(option) != value for option, value in settings.items()):
                continue
            valid = [
                each for each in made.sets if each != KNOWN and by_set[each] == self._prints.get(unknown_role(each))
            ]
            found[name] = [(method, unknown) for unknown in valid for method in made.methods]
        return found

    def _evaluation(self, sets: list[str], methods: list[str], out: str) -> EvaluateConfig:
        groups = {name: ",".join(each) for name, each in self._config.groups.items() if set(each) <= set(sets)}
        roles, extracted = (
            {KNOWN: KNOWN} | {name: unknown_role(name) for name in sets},
            to_extract(self._config, self.name),
        )
        return EvaluateConfig(
            fit=self.places[FIT],
            known=self.places[KNOWN],
            unknown={name: self.places[unknown_role(name)] for name in sets},
            methods=tuple(methods),
            group=groups,
            images={name: self._data[role].section.data for name, role in roles.items() if role in extracted},
            draws=self._config.draws,
            draw_size=self._config.draw_size,
            seed=self._config.seed,
            out=out,
            overwrite=True,
            **self._ray,
        )

    def _own(self) -> list[str]:
        """The folders that are named as evaluations of a study are; other names are the user's."""
        return [name for name in folders_in(self.folder) if _NAME.fullmatch(name)]

    def _is_evaluation(self, name: str) -> bool:
        try:
            content = read_json(join(self.folder, name, MANIFEST))
        except (OSError, ValueError):
            return False
        return isinstance(content, dict) and content.get("format") == "ghost_ray" and content.get("kind") == EVALUATION

    def _free_name(self) -> str:
        taken = set(folders_in(self.folder))
        number = next(n for n in range(1, len(taken) + 2) if _numbered(n) not in taken)
        return _numbered(number)


def _numbered(number: int) -> str:
    return EVALUATION if number == 1 else f"{EVALUATION}-{number}"


def _is_done(folder: str) -> bool:
    return kind_of(join(folder, MANIFEST)) == "file"


def _manifest(folder: str, kind: type[M]) -> M | None:
    """The manifest of a whole result; None where there is none, a damaged one, or one of other code."""
    if not _is_done(folder):
        return None
    try:
        made = read_manifest(folder, kind, "out", "ghost-ray study")
    except InputError:
        return None
    return made if made.is_of_this_code() else None


def _fingerprints(manifest: Manifest) -> list[str | None]:
    return [part.fingerprint for part in manifest.data]

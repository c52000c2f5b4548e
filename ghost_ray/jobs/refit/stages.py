"""The jobs a version is made by, run one after the other into the folder that becomes the version.

Every job's result is complete or absent, so a killed refit resumes after the finished jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyarrow import fs

from ghost_ray.config import AuditConfig, EvaluateConfig, ExtractConfig, FitConfig, RayJobConfig
from ghost_ray.config.refit_settings import RefitConfig
from ghost_ray.errors import Damaged, GateFailed, InputError, JobFailed, redact
from ghost_ray.files import MANIFEST, OutputFolder, join, kind_of, read_json, remove_tree, resolve
from ghost_ray.files.digests import wrong_digests
from ghost_ray.gaussians import Accumulator
from ghost_ray.jobs.refit.growth import extract_growing, grown_from
from ghost_ray.jobs.refit.inputs import FIT, KNOWN, Inputs, data_sections
from ghost_ray.jobs.refit.log import Log
from ghost_ray.jobs.refit.planning import choose_stores, reusable, stage_keys, usable_store
from ghost_ray.model import THRESHOLDS, Model, write_threshold
from ghost_ray.registry import Summary, VersionManifest, version_folder
from ghost_ray.registry.verifying import STORES
from ghost_ray.store import Store

if TYPE_CHECKING:  # imports Torch
    from ghost_ray.jobs.extract.plan import Plan


class Stages:
    """One refit's jobs; ``folder`` is where the version is put together."""

    def __init__(
        self, config: RefitConfig, inputs: Inputs, folder: str, log: Log, previous: VersionManifest | None
    ) -> None:
        self._config, self._inputs, self._folder, self._log = config, inputs, folder, log
        self._previous = previous
        self._ray = config.model_dump(include=set(RayJobConfig.model_fields))
        self.stores = choose_stores(config, inputs)
        self.keys = stage_keys(config, self.stores)
        self._kept = reusable(config.registry, self.keys, previous)

    def run(self) -> Summary:
        """Everything from images to figures; returns the version's summary."""
        for role in self.stores:
            self._extract(role)
        try:
            self._fit()
            self._audit()
            self._evaluate()
        except InputError as error:
            # This refit made the stores itself: an error in them comes from the network or the images.
            raise GateFailed(f"no version can be made: {error}") from None
        unusable = self._choose_threshold()
        summary = self._summary()
        if unusable:
            summary["threshold_problem"] = unusable
        return summary

    def model(self) -> Model:
        return Model.open(join(self._folder, "model"))

    def store(self, role: str) -> Store:
        return Store.open(self._place(role))

    def _place(self, role: str) -> str:
        return join(self._config.registry, STORES, self.stores[role])

    def _extract(self, role: str) -> None:
        place = self._place(role)
        if not self._is_sound(place, role):
            section = data_sections(self._config)[role]
            options = {**section.model_dump(), **self._config.network.model_dump(), **self._ray}
            if self._config.fit.restrict and role != FIT:
                options |= {"restrict": False, "restrict_like": self._place(FIT)}
            unknown = role not in (FIT, KNOWN)
            with self._log.stage("extract", store=role):
                checks = self._require_images if role == FIT else None
                extract_growing(ExtractConfig(out=place, unknown=unknown, **options), self._base(role), checks)
        made = self.store(role).manifest
        listing = made.data[0].fingerprint if made.data else None
        if (made.network.weights_sha256, listing) != (self._inputs.weights, self._inputs.listings[role]):
            raise JobFailed(f"weights or data of {redact(place)} changed while the refit ran — run it again")

    def _is_sound(self, place: str, role: str) -> bool:
        """Whether a finished store can be used: every byte is compared, and a damaged store is removed."""
        if not _is_done(place):
            return False
        store = usable_store(place)
        if store is not None and not wrong_digests(place, store.manifest.digests or {}):
            return True
        self._log.line("damaged", store=role)
        remove_tree(place)
        return False

    def _require_images(self, plan: Plan) -> None:
        """Refuse, before anything is extracted, classes that cannot have a Gaussian and that a gate does not allow."""
        from ghost_ray.jobs.extract.plan import list_images

        limit = self._config.gates.max_classes_without_gaussian
        label = np.asarray(list_images(plan)["label"])
        thin = int((np.bincount(label[label >= 0], minlength=plan.network.classes) < 2).sum())
        if limit is not None and thin > limit:
            raise InputError(
                "fit.data",
                redact(self._config.fit.data),
                f"{thin:,} of the network's {plan.network.classes:,} classes have fewer than two images, and the gate "
                f"max_classes_without_gaussian allows {limit:,}",
                "write `restrict: true` under fit to keep only the classes that have images, or raise the gate",
            )

    def _base(self, role: str) -> str | None:
        """The store the previous version was made from, where the software that made it is still the same."""
        before = self._previous
        if before is None or role not in before.stores or not self._inputs.same_software(before.versions):
            return None
        return join(self._config.registry, STORES, before.stores[role])

    def _is_there(self, stage: str) -> bool:
        """Whether a result was finished before a kill, or can be copied from the previous version."""
        place = join(self._folder, stage)
        if _is_done(place) or stage not in self._kept or self._previous is None:
            return _is_done(place)
        here, old = resolve(join(version_folder(self._config.registry, self._previous.version), stage))
        with OutputFolder(place, kind=stage, overwrite=True) as output:
            new = resolve(output.staging)[1]
            fs.copy_files(old, new, source_filesystem=here, destination_filesystem=here)
            output.publish()
        self._log.line("kept", stage=stage, of=self._previous.version)
        return True

    def _fit(self) -> None:
        place = join(self._folder, "model")
        if not self._is_there("model"):
            from ghost_ray.jobs.fit import run

            with self._log.stage("fit"):
                config = FitConfig(store=self._place(FIT), out=place, overwrite=True, **self._ray)
                run(config, self._merged_statistics())

    def _merged_statistics(self) -> Accumulator | None:
        """Of a store that grew: the previous version's statistics and those of the new rows; else None."""
        from ghost_ray.cluster import workers
        from ghost_ray.jobs.fit import fit_store

        growth, before = grown_from(self.store(FIT)), self._previous
        if growth is None or before is None or before.stores.get(FIT) != growth[0]:
            return None
        folder = version_folder(self._config.registry, before.version)
        try:
            statistics = Model.open(join(folder, "model")).statistics()
        except Damaged:
            return None
        if statistics is not None:
            with workers(self._config):
                statistics.merge(fit_store(growth[1], "fit new rows"))
        return statistics

    def _audit(self) -> None:
        place = join(self._folder, "audit")
        if not self._is_there("audit"):
            from ghost_ray.jobs.audit import run

            options = {**self._config.audit.model_dump(), **self._ray}
            with self._log.stage("audit"):
                run(AuditConfig(store=self._place(FIT), out=place, overwrite=True, **options))

    def _evaluate(self) -> None:
        place = join(self._folder, "evaluation")
        if self._config.unknown and not self._is_there("evaluation"):
            from ghost_ray.jobs.evaluate import run

            unknown_roles = {name: f"unknown.{name}" for name in self._config.unknown}
            unknown = {name: self._place(role) for name, role in unknown_roles.items()}
            options = {**self._config.evaluate.model_dump(), **self._ray}
            stores = {"fit": self._place(FIT), "known": self._place(KNOWN), "unknown": unknown}
            sections = data_sections(self._config)
            images = {name: sections[role].data for name, role in {KNOWN: KNOWN, **unknown_roles}.items()}
            with self._log.stage("evaluate"):
                run(EvaluateConfig(out=place, overwrite=True, images=images, **stores, **options))

    def _choose_threshold(self) -> str | None:
        """Store the threshold that keeps the requested share of knowns; returns why if there is none."""
        place = join(self._folder, "model")
        if self._config.accept_known is None or kind_of(join(place, THRESHOLDS)) == "file":
            return None
        from ghost_ray.cluster import workers
        from ghost_ray.jobs.score import Rule

        with self._log.stage("threshold"), workers(self._config):
            rule = Rule("accept-known", self._config.accept_known, self.store(KNOWN))
            try:
                write_threshold(place, rule.settle(self.model().gaussians))
            except InputError as error:
                return error.problem
        return None

    def _summary(self) -> Summary:
        model = self.model()
        threshold = model.thresholds()
        audit = read_json(join(self._folder, "audit", "summary.json"))
        measured = KNOWN if KNOWN in self.stores else FIT
        return {
            "accuracy": self.store(measured).manifest.accuracy,
            "accuracy_on": measured,
            "rejected_fraction": audit["rejected_fraction"] if audit["tests"] else None,
            "auoscr": self._auoscr(),
            "classes_without_gaussian": len(model.gaussians.missing),
            "threshold": None if threshold is None else threshold["threshold"],
            "rows_used": model.manifest.rows,
            "failures": {role: self.store(role).manifest.failures for role in self.stores},
        }

    def _auoscr(self) -> dict[str, float]:
        if not self._config.unknown:
            return {}
        results = read_json(join(self._folder, "evaluation", "metrics.json"))["results"]
        return {result["unknown"]: result["auoscr"] for result in results if result["method"] == "ghost"}


def _is_done(folder: str) -> bool:
    return kind_of(join(folder, MANIFEST)) == "file"

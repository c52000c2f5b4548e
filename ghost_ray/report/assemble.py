"""From results to a document: one section each, the summary at the top, what is there and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ghost_ray.errors import one_line, redact
from ghost_ray.report.audit_section import audit_section
from ghost_ray.report.discover import Result
from ghost_ray.report.document import Document, Found, Number, Section, State
from ghost_ray.report.evaluation_section import evaluation_section
from ghost_ray.report.model_section import model_section
from ghost_ray.report.numbers import plural
from ghost_ray.report.version_section import version_section

# The order of the page: the most important first.
_ORDER = ("version", "audit", "evaluation", "model")
_MADE_BY = {
    "audit": "ghost-ray audit STORE --out DIR",
    "evaluation": "ghost-ray evaluate --fit STORE --known STORE --unknown NAME=STORE --out DIR",
    "model": "ghost-ray fit STORE --out DIR",
}


def assemble(results: Sequence[Result], title: str) -> Document:
    """The whole page as an object."""
    sections = []
    for kind in _ORDER:
        mine = [result for result in results if result.kind == kind]
        for position, result in enumerate(mine):
            identity = kind if len(mine) == 1 else f"{kind}-{position + 1}"
            # Results of one kind share a limited amount of data, so that the page stays small.
            sections.append(_section(result, identity, 1 / len(mine)))
    # A demo is the folder around the others and has its own name for the network.
    networks = list(dict.fromkeys(result.network for result in results if result.network and result.kind != "demo"))
    first = _first_of_each_kind(sections)
    spoken = [section for section in first if section.kind != "model" or len(first) == 1]
    return Document(
        title=title,
        network=", ".join(networks),
        verdict=[_headline(section, sections) for section in spoken] or [_only_stores(results)],
        headed=[section.id for section in spoken],
        numbers=_three_numbers([_numbers_named(section, sections) for section in first]),
        # After the sections, which find out what is wrong with the files.
        found=[_line(result) for result in results],
        absent=_absent(results),
        sections=sections,
    )


def _section(result: Result, identity: str, room: float) -> Section:
    make: Callable[[], Section] = {
        "audit": lambda: audit_section(result, identity, room),
        "evaluation": lambda: evaluation_section(result, identity, room),
        "model": lambda: model_section(result, identity),
        "version": lambda: version_section(result, identity),
    }[result.kind]
    try:
        return replace(make(), network=result.network)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
        # Files may come from elsewhere and hold anything; the page reports it and shows the rest.
        result.problems.append(f"does not have the content of a result of kind {result.kind} ({one_line(error, 120)})")
        return Section(identity, result.kind, result.kind.capitalize(), result.name, "This result is damaged.")


def _first_of_each_kind(sections: Sequence[Section]) -> list[Section]:
    seen: dict[str, Section] = {}
    for section in sections:
        seen.setdefault(section.kind, section)
    return [seen[kind] for kind in _ORDER if kind in seen]


def _others(section: Section, sections: Sequence[Section]) -> int:
    """How many other results of its kind are on the page."""
    return sum(other.kind == section.kind for other in sections) - 1


def _headline(section: Section, sections: Sequence[Section]) -> str:
    """A section's verdict with the network it speaks of, and with the folder where there are several of its kind."""
    about = [section.network] if section.network else []
    if _others(section, sections):
        about.append(f"{section.source}, one of {_others(section, sections) + 1} results of this kind here")
    return f"{' · '.join(about)} — {section.verdict}" if about else section.verdict


def _numbers_named(section: Section, sections: Sequence[Section]) -> Section:
    """The section with numbers that say which of several results they are of."""
    if not _others(section, sections):
        return section
    return replace(section, numbers=[replace(n, note=f"{n.note}; {section.source}") for n in section.numbers])


def _three_numbers(sections: Sequence[Section]) -> list[Number]:
    """The changes, if there is a version; else the first number of each kind, then further important ones."""
    shown = {section.kind: list(section.numbers) for section in sections}
    if shown.get("version"):
        return shown["version"][:3]
    audit, evaluation, model = (shown.get(kind, []) for kind in ("audit", "evaluation", "model"))
    return [*audit[:1], *evaluation[:2], *audit[1:], *evaluation[2:], *model][:3]


def _only_stores(results: Sequence[Result]) -> str:
    stores = [result for result in results if result.kind == "store"]
    if not stores:
        return "There is no audit, no evaluation and no model here yet."
    rows = sum(int(result.manifest.get("rows", 0)) for result in stores if result.manifest)
    return f"{plural(len(stores), 'store')} with {plural(rows, 'row')} of embeddings, but no results from them yet."


def _line(result: Result) -> Found:
    state: State = "damaged" if result.problems else "complete" if result.manifest is not None else "unfinished"
    notes = list(dict.fromkeys(result.problems))
    if result.manifest is None and not result.problems:
        notes.append("no manifest.json: the job that writes it was stopped or is still running")
    if result.missing:
        notes.append("missing: " + ", ".join(result.missing))
    if result.kind == "store":  # which has no section for them
        notes += result.notes
    return Found(
        folder=redact(result.name),
        kind=result.kind,
        state=state,
        note="; ".join(notes),
        created=str(result.manifest.get("created", "")) if result.manifest else "",
        network=result.network,
    )


def _absent(results: Sequence[Result]) -> list[str]:
    kinds = {result.kind for result in results}
    return [f"No {kind} here. Make one with `{command}`." for kind, command in _MADE_BY.items() if kind not in kinds]

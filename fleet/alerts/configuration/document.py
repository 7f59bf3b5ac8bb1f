"""Reading and writing the YAML document of the configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from typing_extensions import override

from fleet.alerts.configuration.fields import FieldError, Secret, placeholder_of, quote
from fleet.alerts.configuration.sections import (
    CHILD_ROUTES,
    NAME_FIELDS,
    Configuration,
    Key,
    Section,
    Setting,
    fields_of,
    number_keys,
)
from fleet.protocol import strict_yaml, text_limits
from fleet.vocabulary.actions import RefusalError

#: Maximum length of a document, characters: some 500 routes.
MAX_DOCUMENT_LENGTH = 262_144
#: Most problems that an error lists, and most characters of one.
_MAX_PROBLEM_COUNT, _MAX_PROBLEM_LENGTH = 20, 400
#: Sections in which two objects of the same owner and name are an error.
_UNIQUE_SECTIONS = frozenset({Section.CHANNELS, Section.RULES})
_HEADER = """\
# The alerting configuration of {scope}, exported by Refloat.
# Import it with `refloat alerting import FILE`, or on the page Import.
# A secret is ${{NAME}}: the import reads it from the environment variable NAME. While that variable is not set, the
# name of the export keeps the secret that is stored.
# What the file does not name is kept: sections, objects and fields.
"""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class DocumentProblem:
    """What is wrong with a document, and where."""

    text: str
    #: Line, from 1; None if the problem has no place.
    line: int | None = None
    #: Keys and list positions that lead to the object or the field; empty: the problem is not about an object.
    path: Path = ()

    @property
    def sentence(self) -> str:
        """The problem with its line: `line 5: the name is missing`."""
        return self.text if self.line is None else f"line {self.line}: {self.text}"

    @property
    def object_path(self) -> Path:
        """The path of the object that the problem is about; empty if it is about none."""
        positions = [index for index, step in enumerate(self.path) if isinstance(step, int)]
        return self.path[: positions[-1] + 1] if positions else ()


class ConfigurationError(RefusalError, ValueError):
    """A document cannot be imported; `problems` says why, in the order of lines."""

    def __init__(self, problems: Iterable[DocumentProblem]) -> None:
        ordered_problems = sorted(problems, key=lambda problem: problem.line or 0)
        self.problems = tuple(
            replace(problem, text=text_limits.cut(problem.text, _MAX_PROBLEM_LENGTH))
            for problem in ordered_problems[:_MAX_PROBLEM_COUNT]
        )
        if len(ordered_problems) > _MAX_PROBLEM_COUNT:
            more = f"the document has {len(ordered_problems)} problems; the first {_MAX_PROBLEM_COUNT} are listed"
            self.problems += (DocumentProblem(more),)
        super().__init__("; ".join(problem.sentence for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document: its objects, and the line of each of its values."""

    configuration: Configuration
    lines: Mapping[Path, int]
    #: What is wrong with the document itself. The objects then lack the values that are wrong.
    problems: tuple[DocumentProblem, ...] = ()

    def make_problem(self, setting: Setting, text: str, field_name: str = "") -> DocumentProblem:
        """Return a problem with an object or one of its fields."""
        return DocumentProblem(text, self.line_of(setting, field_name), setting.path)

    def line_of(self, setting: Setting, field_name: str = "") -> int | None:
        """Return the line of a field of an object; of the object if it lacks the field."""
        line = self.lines.get((*setting.path, field_name)) if field_name else None
        return line or self.lines.get(setting.path)


def load(text: str) -> Document:
    """Parse a document. Raises ConfigurationError with all its problems."""
    document = read(text)
    if document.problems:
        raise ConfigurationError(document.problems)
    return document


def read(text: str) -> Document:
    """Parse a document, with its problems. Raises ConfigurationError for a text that is not a YAML mapping."""
    try:
        content = strict_yaml.load(text, longest=MAX_DOCUMENT_LENGTH)
        lines = strict_yaml.find_lines(text, longest=MAX_DOCUMENT_LENGTH)
    except strict_yaml.StrictYAMLError as error:
        raise ConfigurationError([DocumentProblem(f"the document is not valid YAML: {error}")]) from error
    sections = ", ".join(Section)
    if not isinstance(content, dict):
        raise ConfigurationError(
            [DocumentProblem(f"the document must be a mapping with the keys {sections}")]
        )
    reader = _Reader(lines)
    for key in content:
        if key not in set(Section):
            reader.complain((key,), f"unknown key {quote(key)}. Use {sections}")
    settings = {
        section: tuple(reader.read_settings(section, content[section.value], (section.value,), ()))
        for section in Section
        if section.value in content
    }
    return Document(Configuration(settings), lines, tuple(reader.problems))


class _Reader:
    """Reads the objects of a document, and collects its problems."""

    def __init__(self, lines: Mapping[Path, int]) -> None:
        self._lines = lines
        self.problems: list[DocumentProblem] = []

    def complain(self, path: Path, text: str) -> None:
        """Add a problem at a place of the document."""
        self.problems.append(DocumentProblem(text, self._lines.get(path), path))

    def read_settings(self, section: Section, entries: Any, path: Path, parent: Key) -> Iterable[Setting]:
        """Yield the objects of a list, each route before its child routes."""
        if entries is None:
            entries = []
        if not isinstance(entries, list):
            self.complain(path, f"{path[-1]} must be a list")
            return
        valid_entries: list[tuple[Path, dict[str, Any]]] = []
        for position, entry in enumerate(entries):
            if isinstance(entry, dict):
                valid_entries.append(((*path, position), entry))
            else:
                self.complain(
                    (*path, position), f"a {section.noun} must be a mapping that begins with its name"
                )
        names = [self._read_name(section, entry, entry_path) for entry_path, entry in valid_entries]
        keys = number_keys(names, parent)
        for (entry_path, entry), key in zip(valid_entries, keys, strict=True):
            if section in _UNIQUE_SECTIONS and key[-1][2] and key[-1][1]:
                self.complain(
                    (*entry_path, "name"), f"another {section.noun} has the name {quote(key[-1][1])} already"
                )
            yield Setting(section, key, self._read_values(section, entry, entry_path), entry_path)
            if section is Section.ROUTES and CHILD_ROUTES in entry:
                yield from self.read_settings(section, entry[CHILD_ROUTES], (*entry_path, CHILD_ROUTES), key)

    def _read_name(self, section: Section, entry: Mapping[str, Any], path: Path) -> tuple[str, str]:
        values = []
        for spec in NAME_FIELDS:
            value = spec.default
            if spec.name in entry:
                try:
                    value = spec.parse(entry[spec.name])
                except FieldError as error:
                    self.complain((*path, spec.name), f"{spec.name}: {error}")
            elif spec.is_required:
                self.complain(path, f"the {spec.name} of a {section.noun} is missing")
            values.append(value)
        name, cluster = values
        return cluster, name

    def _read_values(self, section: Section, entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
        specs = fields_of(section, str(entry.get("kind", "")))
        known_keys = [*(spec.name for spec in NAME_FIELDS), *specs]
        known_keys += [CHILD_ROUTES] if section is Section.ROUTES else []
        values: dict[str, Any] = {}
        if section is Section.CHANNELS and "kind" not in entry:
            self.complain(path, "the kind of a channel is missing")
            return values
        for key, value in entry.items():
            if key not in known_keys:
                names = ", ".join(known_keys)
                self.complain((*path, key), f"unknown key {quote(key)} of a {section.noun}. Use {names}")
            elif key in specs:
                try:
                    values[key] = specs[key].parse(value)
                except FieldError as error:
                    self.complain((*path, key), f"{key}: {error}")
        return values


def dump(configuration: Configuration, scope: str) -> str:
    """Return a configuration as YAML, with all fields; secrets are placeholders. `scope`: `cluster default`."""
    content: dict[str, Any] = {}
    for section, settings in configuration.settings.items():
        entries: dict[Key, list[Any]] = {(): []}
        for setting in settings:
            entry = _entry_of(setting)
            entries[setting.key[:-1]].append(entry)
            if section is Section.ROUTES:
                entries[setting.key] = []
                entry[CHILD_ROUTES] = entries[setting.key]
        content[section.value] = entries[()]
    _drop_empty_lists(content.get(Section.ROUTES.value, ()))
    body = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"{_HEADER.format(scope=scope)}{body}"


class _Dumper(yaml.SafeDumper):
    """Writes short lists in one line, and no aliases."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        """Return True: an import accepts no aliases."""
        return True


class _FlowList(list[Any]):
    """A list in one line: `[ops, pager]`."""


_Dumper.add_representer(
    _FlowList,
    lambda dumper, entries: dumper.represent_sequence("tag:yaml.org,2002:seq", entries, flow_style=True),
)


def _entry_of(setting: Setting) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": setting.name} | ({"cluster": setting.cluster} if setting.cluster else {})
    for name, spec in setting.specs.items():
        if name not in setting.values:
            continue
        value = setting.values[name]
        if isinstance(value, Secret):
            value = placeholder_of(setting.cluster, setting.name, name)
        document_value = spec.format(value)
        entry[name] = _FlowList(document_value) if isinstance(document_value, list) else document_value
    return entry


def _drop_empty_lists(entries: Sequence[dict[str, Any]]) -> None:
    """Remove the lists of child routes that are empty."""
    for entry in entries:
        _drop_empty_lists(entry[CHILD_ROUTES])
        if not entry[CHILD_ROUTES]:
            del entry[CHILD_ROUTES]

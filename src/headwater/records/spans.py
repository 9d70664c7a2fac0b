"""Which words of an item came from which feature, by rendering its recorded template. Pure.

A span is found by rendering the template that the record holds with the values that it holds, and
only if the result is exactly the recorded text. A feature that is itself a template is rendered in
the same way with its inputs, by its present declaration. Nothing is found by searching the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headwater.core.templates import MARK, Template, parse_template
from headwater.errors import FormatError, TemplateError
from headwater.model.lineage import TextSpan
from headwater.records.core import Commitment, Core, FeatureInput, FeatureRead, Item

Templates = Mapping[str, Template]
"""The declared templates by the names of their features."""


class ItemReads(NamedTuple):
    """The places of the features that the template of an item reads, and its spans in order."""

    reads: Sequence[int] = ()
    spans: Sequence[TextSpan] = ()


class SpanFinder:
    """Finds the reads and the spans of the items of one core."""

    def __init__(self, core: Core, templates: Templates) -> None:
        self._features = core.features
        self._templates = templates
        self._ids = {str(value) for value in core.inputs.values()}
        self._places: dict[str, list[int]] = {}
        for place, read in enumerate(core.features):
            self._places.setdefault(read.feature, []).append(place)

    def reads_of(self, item: Item) -> ItemReads:
        """Return what an item's template reads; nothing if the record does not prove it."""
        source = item.source
        if source.kind != "template" or not isinstance(source.ref, str):
            return ItemReads()
        try:
            template = parse_template(source.ref)
        except TemplateError:
            return ItemReads()
        reads = {name: self._read(name) for name in template.references}
        places = sorted({place for place in reads.values() if place is not None})
        return ItemReads(places, self._spans(item, template, reads))

    def _read(self, name: str) -> int | None:
        """Return the place of the value that templates got for a name, or None if in doubt.

        Templates are rendered last, for the entity that the arguments name.
        """
        places = self._places.get(name, [])
        if len({self._features[place].entity_id for place in places}) > 1:
            places = [place for place in places if self._features[place].entity_id in self._ids]
        last = {self._features[place].entity_id: place for place in places}
        return next(iter(last.values())) if len(last) == 1 else None

    def _spans(
        self, item: Item, template: Template, reads: Mapping[str, int | None]
    ) -> Sequence[TextSpan]:
        values = {
            name: self._features[place].value for name, place in reads.items() if place is not None
        }
        content = item.content
        if not isinstance(content, str) or not _renders(template, reads, values, content):
            return ()
        # Only as many characters of the content are in the text.
        end = len(content)
        if item.decision == "truncated" and isinstance(item.emitted, str):
            end = len(item.emitted.removesuffix(MARK))
        spans: list[TextSpan] = []
        for name, start, stop in template.places(values):
            place = reads[name]
            assert place is not None, "every reference has a value"
            spans.append(TextSpan(start=start, end=stop, feature=name, read=place))
            if content[start:stop] == values[name]:  # not padded or cut by a format
                spans += self._inner(self._features[place], place, name, start)
        visible = [span for span in spans if span.start < min(span.end, end)]
        return [msgspec.structs.replace(span, end=min(span.end, end)) for span in visible]

    def _inner(self, read: FeatureRead, place: int, name: str, at: int) -> Iterator[TextSpan]:
        """Yield the spans inside a value whose feature is a template, at any depth."""
        pending: list[tuple[str, FeatureInput, int]] = [(name, read, at)]
        for outer, value, start in pending:
            template, text = self._templates.get(outer), value.value
            if template is None or not isinstance(text, str):
                continue
            inputs = {
                reference: _input(read, value, reference) for reference in template.references
            }
            places = {reference: at for reference, at in inputs.items() if at is not None}
            values = {reference: read.inputs[at].value for reference, at in places.items()}
            if not _renders(template, inputs, values, text):
                continue
            for reference, inner, stop in template.places(values):
                yield TextSpan(
                    start=start + inner,
                    end=start + stop,
                    feature=reference,
                    read=place,
                    input=places[reference],
                )
                if text[inner:stop] == values[reference]:
                    pending.append((reference, read.inputs[places[reference]], start + inner))


def _renders(
    template: Template, names: Collection[str], values: Mapping[str, Any], text: str
) -> bool:
    """Return whether a template with these values is exactly a text; a withheld value has none."""
    if len(values) < len(names) or any(isinstance(v, Commitment) for v in values.values()):
        return False
    try:
        return template.render(values) == text
    except FormatError:
        return False


def _input(read: FeatureRead, value: FeatureInput, name: str) -> int | None:
    """Return the place of the one input of this name, of the same entity; None if in doubt."""
    candidates = [
        (place, inner)
        for place, inner in enumerate(read.inputs)
        if inner.feature == name and inner.entity_id == value.entity_id
    ]
    is_one = all(inner.value == candidates[0][1].value for _, inner in candidates)
    return candidates[0][0] if candidates and is_one else None

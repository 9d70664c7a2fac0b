"""Arguments of the tools; the descriptions are for the model that fills them in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

LARGEST_READ = 100

_Name = Annotated[str, Meta(max_length=256)]
_EntityId = Annotated[
    str, Meta(max_length=1024, description="Id of the entity, such as a user id; numbers as text.")
]
_Ref = Annotated[
    str,
    Meta(
        max_length=256,
        description="Context id, record hash, or the first 8 or more characters of a context id.",
    ),
]

DeclarationKind = Literal["entities", "features", "indexes", "retrievers", "contexts"]


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class FeatureArguments(_Arguments, frozen=True, kw_only=True):
    """One feature of one entity."""

    feature: Annotated[_Name, Meta(description="Name of a declared feature.")]
    entity_id: _EntityId


class FeaturesArguments(_Arguments, frozen=True, kw_only=True):
    """Features of one kind of entity, and the entities."""

    features: Annotated[
        list[_Name],
        Meta(
            min_length=1,
            max_length=LARGEST_READ,
            description="Names of declared features that belong to the same kind of entity.",
        ),
    ]
    entity_ids: Annotated[list[_EntityId], Meta(min_length=1, max_length=LARGEST_READ)]


class DeclarationsArguments(_Arguments, frozen=True, kw_only=True):
    """The declarations to list."""

    kind: Annotated[
        DeclarationKind | None, Meta(description="List only these. Default: everything.")
    ] = None


class AssembleArguments(_Arguments, frozen=True, kw_only=True):
    """A context, its parameters, and limits that are tighter than the declared ones."""

    context: Annotated[_Name, Meta(description="Name of a declared context.")]
    params: Annotated[
        dict[str, Any],
        Meta(description="Parameters of the context; list_declarations describes them."),
    ] = {}
    max_tokens: Annotated[int | None, Meta(description="Token budget. Default: as declared.")] = (
        None
    )
    freshness_sla: Annotated[
        str | None,
        Meta(description="Largest allowed age of values, such as 5m. Default: as declared."),
    ] = None


class RecordArguments(_Arguments, frozen=True, kw_only=True):
    """A recorded context."""

    ref: _Ref

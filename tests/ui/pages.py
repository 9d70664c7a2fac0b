"""The addresses of all pages."""

from tests.ui.site import Site

NAMES = (
    *("overview", "store", "lookup", "playground", "retrievers", "records", "record", "compare"),
    *("impact", "verify", "events", "dead-letters", "doctor"),
)


def path_of(name: str, site: Site) -> str:
    """Return the path of a page that shows data of the site."""
    special = {
        "overview": "",
        "lookup": "lookup?entity=User&id=ada",
        "record": f"records/{site.records[0]}",
        "compare": f"compare?a={site.records[0]}&b={site.records[1]}",
    }
    return f"/ui/{special.get(name, name)}"

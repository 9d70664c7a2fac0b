"""The choice between the embedded environment and the one on servers."""

from __future__ import annotations

from headwater.errors import ConfigError
from headwater.settings.schema import Settings


def on_servers(settings: Settings) -> bool:
    """Return whether the store is on Redis and Postgres; raise if only one of them is set."""
    urls = {"redis.url": settings.redis.url, "postgres.url": settings.postgres.url}
    missing = [name for name, url in urls.items() if not url]
    if missing and (settings.env == "production" or len(missing) < len(urls)):
        raise ConfigError(
            f"{' and '.join(missing)} must be set: the store lives either on Redis and Postgres or "
            "in the embedded home; see `headwater config show`"
        )
    return not missing

"""The rows named history: point-in-time reads of many rows."""

from pathlib import Path

from bench.case import AtMostTimesFloor, Case, Effort
from bench.feast import peer as feast
from bench.history_frames import SIZES, files
from bench.in_child import in_child

_FEAST_SIZE = "100k x 1M"


def _feast_files(effort: Effort) -> tuple[Path, int]:
    folder, size = files(SIZES[_FEAST_SIZE], effort)
    return folder, size.features


HISTORY_CASES = (
    *(
        Case(
            name=f"history {size}, 10 features (CPU)",
            unit="s",
            ours=in_child("history_frames", f"ours {size}"),
            floor=in_child("history_frames", f"raw_tables {size}"),
            floor_is="one DuckDB query with an ASOF join per feature over the same file",
            peer=in_child("history_frames", f"polars {size}"),
            peer_is="Polars join_asof per feature",
            targets=(
                AtMostTimesFloor(1.3),
                *([AtMostTimesFloor(0.5, "peak_mb")] if size != "100k x 1M" else []),
            ),
            rounds=1,
        )
        for size in SIZES
    ),
    Case(
        name="history 1M x 5M in a lake (CPU)",
        unit="s",
        ours=in_child("history_frames", "lake 1M x 5M"),
        floor=in_child("history_frames", "ours 1M x 5M"),
        floor_is="ours over the local file with the same rows",
        targets=(AtMostTimesFloor(1.3),),
        rounds=1,
    ),
    Case(
        name="history of 100k rows, 10 stored and 2 derived features",
        unit="s",
        ours=in_child("training_frames", "derived"),
        floor=in_child("training_frames", "stored"),
        floor_is="ours with the stored features alone",
        targets=(AtMostTimesFloor(3),),
        rounds=3,
    ),
    Case(
        name=f"history {_FEAST_SIZE}, next to Feast (CPU)",
        unit="s",
        ours=in_child("history_frames", f"ours {_FEAST_SIZE}"),
        floor=feast.past_values(_feast_files),
        floor_is=f"{feast.NAME} on DuckDB",
        targets=(AtMostTimesFloor(0.5),),
        rounds=1,
    ),
)

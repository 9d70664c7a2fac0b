"""The rows named history: point-in-time reads of many rows."""

from bench.case import AtMostTimesFloor, Case
from bench.history_frames import SIZES
from bench.in_child import in_child

HISTORY_CASES = tuple(
    Case(
        name=f"history {size}, 10 features (CPU)",
        unit="s",
        ours=in_child("history_frames", f"ours {size}"),
        floor=in_child("history_frames", f"raw {size}"),
        floor_is="one DuckDB ASOF join per feature over the same file",
        peer=in_child("history_frames", f"polars {size}"),
        peer_is="Polars join_asof per feature",
        targets=(
            AtMostTimesFloor(1.3),
            *([AtMostTimesFloor(0.5, "peak_mb")] if size == "1M x 5M" else []),
        ),
        rounds=1,
    )
    for size in SIZES
)

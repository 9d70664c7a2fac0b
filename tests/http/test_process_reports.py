"""The metrics of several processes are one set: counts are added, gauges are told apart."""

from prometheus_client import generate_latest

from headwater.http.routes.process_reports import Family, MergedMetrics, Report


def counter(value: float, created: float, **labels: str) -> Family:
    samples: list[tuple[str, dict[str, str], float | str]] = [
        ("headwater_seen_total", labels, value),
        ("headwater_seen_created", labels, created),
    ]
    return Family("headwater_seen", "Seen.", "counter", samples)


def lines(*reports: Report) -> list[str]:
    text = generate_latest(MergedMetrics(reports)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_counts_are_added_by_label_and_begin_with_the_first_process() -> None:
    one = Report(metrics=[counter(2, 200, kind="a"), counter(1, 200, kind="b")])
    two = Report(metrics=[counter(3, 100, kind="a")], labels={"worker": "1"})
    assert lines(one, two) == [
        'headwater_seen_total{kind="a"} 5.0',
        'headwater_seen_total{kind="b"} 1.0',
        'headwater_seen_created{kind="a"} 100.0',
        'headwater_seen_created{kind="b"} 200.0',
    ]


def test_gauges_and_metrics_of_the_process_have_its_label() -> None:
    lag = Family("headwater_lag_events", "Lag.", "gauge", [("headwater_lag_events", {}, 4.0)])
    used = Family(
        "process_cpu_seconds", "CPU.", "counter", [("process_cpu_seconds_total", {}, 9.0)]
    )
    unknown = Family("headwater_lag_events", "Lag.", "gauge", [("headwater_lag_events", {}, "nan")])
    assert lines(
        Report(metrics=[unknown]), Report(metrics=[lag, used], labels={"worker": "1"})
    ) == [
        'headwater_lag_events{worker="1"} 4.0',
        'process_cpu_seconds_total{worker="1"} 9.0',
    ]

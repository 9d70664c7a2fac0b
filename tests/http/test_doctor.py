"""The doctor over HTTP."""

from tests.http.conftest import KEY, MakeStore, Serving


async def test_a_server_examines_itself(make_store: MakeStore, serving: Serving) -> None:
    async with serving(make_store()) as client:
        body = (await client.get("/v1/doctor")).raise_for_status().json()
    found = {(each["area"], each["check"]): each for each in body["findings"]}
    assert body["status"] != "error"
    # Breakers are those of this process, in which other tests may have opened some.
    assert found["workload", "circuit breakers"]["severity"] != "unknown"
    assert found["configuration", "api_key"]["found"] != KEY
    fields = {"area", "check", "severity", "looked_at", "found", "remedy", "concern"}
    assert body["findings"][0].keys() == fields

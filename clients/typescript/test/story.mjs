// What an application does, under Node and in a page; returns what it saw.
export async function story({ createClient, ProblemError }, url) {
    const headwater = createClient({ url });
    const purchase = { entity_id: "ada", payload: { amount: 40 } };
    await headwater.ingest_event({ event_type: "purchase", wait: "30s", body: purchase });
    await headwater.ingest_events({
        wait: "30s",
        body: [
            { event_type: "purchase", entity_id: "ada", payload: { amount: 2 } },
            { event_type: "purchase", entity_id: "ben/é", payload: { amount: 1 } },
        ],
    });
    const spend = await headwater.read_feature({ name: "total_spend", entity_id: "ada" });
    const other = await headwater.read_feature({ name: "total_spend", entity_id: "ben/é" });
    const asked = { params: { user_id: "ada", question: "When?" } };
    const context = await headwater.assemble_context({ name: "support", body: asked });
    const explained = await headwater.explain_context({ id: context.context_id });
    const unknown = await headwater
        .read_feature({ name: "total_spent", entity_id: "ada" })
        .catch((error) =>
            error instanceof ProblemError
                ? [error.status, error.type, error.problem.nearest]
                : error,
        );

    // The answers to the first two requests are lost, after the server has handled them.
    let sent = 0;
    const lossy = createClient({
        url,
        fetch: async (...request) => {
            const answer = await fetch(...request);
            sent += 1;
            if (sent < 3) throw new TypeError("the connection was lost");
            return answer;
        },
    });
    await lossy.ingest_event({ event_type: "visit", wait: "30s", body: { entity_id: "ada" } });
    const visits = await headwater.read_feature({ name: "visits", entity_id: "ada" });
    const requests = sent;
    sent = 0;
    const assembled = await lossy
        .assemble_context({ name: "support", body: asked })
        .catch(() => "not sent again");
    const metrics = await headwater.metrics();
    return {
        spend: spend.value,
        other: other.value,
        isSame: explained.context_id === context.context_id,
        unknown,
        requests,
        visits: visits.value,
        assembled,
        metrics: (await metrics.text()).includes("headwater_"),
    };
}

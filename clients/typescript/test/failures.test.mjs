// What the client does with a server that fails, refuses, is late or never ends: `node --test`.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { afterEach, test } from "node:test";

const built = process.env.HEADWATER_CLIENT ?? new URL("../dist/index.js", import.meta.url).href;
const { createClient, ProblemError } = await import(built);

const servers = [];

/** Start a server that answers each request as the next of some functions says, and a client. */
async function misbehaving(answers, options = {}) {
    const requests = [];
    const server = createServer(async (request, response) => {
        const parts = [];
        for await (const part of request) parts.push(part);
        const { method, url, headers } = request;
        requests.push({ method, url, headers, body: Buffer.concat(parts).toString(), at: performance.now() });
        server.emit("asked");
        (answers[requests.length - 1] ?? answers.at(-1))(response);
    });
    servers.push(server);
    await once(server.listen(0, "127.0.0.1"), "listening");
    const url = `http://127.0.0.1:${server.address().port}`;
    return { client: createClient({ url, ...options }), requests, server };
}

afterEach(() => {
    for (const server of servers.splice(0)) {
        server.closeAllConnections();
        server.close();
    }
});

const json = (status, body, headers = {}) => (response) => {
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(JSON.stringify(body));
};
const refused = (status, type, headers) =>
    json(status, { type: `urn:headwater:problem:${type}`, detail: `the problem ${type}` }, headers);
const fine = json(200, { value: 7 });
const accepted = json(202, { event_id: "e", visible: true });
const lost = (response) => response.socket.destroy();
const silent = () => {};

const EVENT = { event_type: "visit", body: { entity_id: "ada" } };
const FEATURE = { name: "visits", entity_id: "ada" };
const CONTEXT = { name: "support", body: { params: {} } };

const failure = (type, status) => (error) =>
    error instanceof ProblemError && error.type === type && error.status === status;

for (const status of [429, 503])
    test(`a request refused with ${status} is sent again after Retry-After`, async () => {
        const type = status === 429 ? "too-many-requests" : "too-many-calls";
        const wait = refused(status, type, { "Retry-After": "0.4" });
        const { client, requests } = await misbehaving([wait, fine]);
        assert.equal((await client.read_feature(FEATURE)).value, 7);
        assert.equal(requests.length, 2);
        assert(requests[1].at - requests[0].at >= 395);
    });

test("Retry-After may be a date", async () => {
    // Dates have whole seconds.
    const date = new Date(Math.ceil(Date.now() / 1000) * 1000 + 1000);
    const wait = refused(429, "too-many-requests", { "Retry-After": date.toUTCString() });
    const { client, requests } = await misbehaving([wait, fine]);
    await client.read_feature(FEATURE);
    assert(requests[1].at - requests[0].at >= 995);
    assert(Date.now() >= date.getTime() - 5);
});

test("an assembly is sent again if it was refused, and not if it may have begun", async () => {
    const begun = [
        refused(503, "backend", { "Retry-After": "1" }),
        json(502, {}),
        json(504, {}),
        lost,
    ];
    for (const answer of begun) {
        const { client, requests } = await misbehaving([answer, fine]);
        await assert.rejects(client.assemble_context(CONTEXT));
        assert.equal(requests.length, 1);
    }
    const { client, requests } = await misbehaving([refused(503, "backlog"), refused(429, "x"), fine]);
    await client.assemble_context(CONTEXT);
    assert.equal(requests.length, 3);
});

test("a server that asks for more patience than ten seconds is not asked again", async () => {
    const { client, requests } = await misbehaving([
        refused(429, "too-many-requests", { "Retry-After": "3600" }),
    ]);
    await assert.rejects(client.read_feature(FEATURE), (error) => error.retryAfter === 3600);
    assert.equal(requests.length, 1);
});

for (const status of [502, 503, 504])
    test(`a read is sent again after a ${status} of a proxy`, async () => {
        const proxy = (response) => response.writeHead(status).end("<html>bad</html>");
        const { client, requests } = await misbehaving([proxy, fine]);
        assert.equal((await client.read_feature(FEATURE)).value, 7);
        assert.equal(requests.length, 2);
    });

test("the last failure is raised after all retries, each after a longer pause", async () => {
    const { client, requests } = await misbehaving([json(502, null)], { retries: 3 });
    await assert.rejects(client.read_feature(FEATURE), failure("", 502));
    const [first, second, third] = requests.slice(1).map(({ at }, i) => at - requests[i].at);
    assert(first >= 45 && second >= 95 && third >= 195);
    assert.equal(requests.length, 4);
});

test("other failures are raised at once", async () => {
    for (const [status, type] of [[400, "malformed"], [404, "unknown-feature"], [500, "internal"]]) {
        const { client, requests } = await misbehaving([refused(status, type)]);
        await assert.rejects(client.read_feature(FEATURE), failure(type, status));
        assert.equal(requests.length, 1);
    }
});

test("an event that is sent again has the id of before", async () => {
    const { client, requests } = await misbehaving([lost, json(504, {}), accepted]);
    await client.ingest_event(EVENT);
    const ids = requests.map(({ body }) => JSON.parse(body).event_id);
    assert.equal(ids.length, 3);
    assert.match(ids[0], /^[0-9a-f]{32}$/);
    assert.equal(new Set(ids).size, 1);
    await client.ingest_event({ ...EVENT, body: { ...EVENT.body, event_id: "own" } });
    assert.equal(JSON.parse(requests[3].body).event_id, "own");
});

test("a server that does not answer is given up after the timeout, for each attempt", async () => {
    const { client, requests } = await misbehaving([silent], { timeout: 0.2, retries: 1 });
    await assert.rejects(client.read_feature(FEATURE), {
        name: "TimeoutError",
        message: "the server did not answer within 0.2 s",
    });
    assert.equal(requests.length, 2);
    await assert.rejects(client.assemble_context(CONTEXT), { name: "TimeoutError" });
    assert.equal(requests.length, 3);
});

test("an answer in JSON that stops in the middle is given up after the timeout", async () => {
    const stuck = (response) => {
        response.writeHead(200, { "Content-Type": "application/json" });
        response.write('{"value": ');
    };
    const { client, requests } = await misbehaving([stuck, fine], { timeout: 1 });
    assert.equal((await client.read_feature(FEATURE)).value, 7);
    assert.equal(requests.length, 2);
});

test("a call may have its own timeout and headers", async () => {
    const late = (response) => setTimeout(() => fine(response), 300);
    const { client, requests } = await misbehaving([late], { timeout: 0.05, retries: 0 });
    const own = { timeout: Infinity, headers: { "Last-Event-ID": "4" } };
    assert.equal((await client.read_feature(FEATURE, own)).value, 7);
    assert.equal(requests[0].headers["last-event-id"], "4");
    await assert.rejects(client.read_feature(FEATURE), { name: "TimeoutError" });
});

/** Begin to answer in lines, one each 50 ms, as many as are told. */
const lines = (count) => (response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.flushHeaders();
    let sent = 0;
    const timer = setInterval(() => {
        response.write(`data: ${(sent += 1)}\n\n`);
        if (sent === count) response.end();
    }, 50);
    response.on("close", () => clearInterval(timer));
};

test("an answer in lines lasts longer than the timeout", async () => {
    const { client } = await misbehaving([lines(12)], { timeout: 0.2 });
    const text = await (await client.tail_events()).text();
    assert(text.endsWith("data: 12\n\n"));
});

test("the caller ends an answer in lines, and the server sees it", async () => {
    const { client, server } = await misbehaving([lines(Infinity)]);
    const connected = once(server, "connection");
    const controller = new AbortController();
    const answer = await client.tail_events({}, { signal: controller.signal });
    const [socket] = await connected;
    const closed = once(socket, "close");
    const reader = answer.body.getReader();
    assert.equal(new TextDecoder().decode((await reader.read()).value), "data: 1\n\n");
    globalThis.gc();
    controller.abort();
    await assert.rejects(async () => {
        while (!(await reader.read()).done);
    }, { name: "AbortError" });
    await closed;
});

test("the caller ends a call that waits for the answer", async () => {
    const { client, requests, server } = await misbehaving([silent]);
    const controller = new AbortController();
    const call = client.read_feature(FEATURE, { signal: controller.signal });
    await once(server, "asked");
    controller.abort(new Error("the page was left"));
    await assert.rejects(call, { message: "the page was left" });
    assert.equal(requests.length, 1);
});

test("the caller ends a call in the pause before its next attempt", async () => {
    const wait = refused(429, "too-many-requests", { "Retry-After": "9" });
    const { client, requests } = await misbehaving([wait]);
    const start = performance.now();
    const call = client.read_feature(FEATURE, { signal: AbortSignal.timeout(500) });
    await assert.rejects(call, { name: "TimeoutError" });
    assert(performance.now() - start < 5000);
    assert.equal(requests.length, 1);
});

test("a call of a caller that has ended it before sends nothing", async () => {
    const { client, requests } = await misbehaving([fine]);
    await assert.rejects(client.read_feature(FEATURE, { signal: AbortSignal.abort() }), {
        name: "AbortError",
    });
    assert.equal(requests.length, 0);
});

test("a file is sent as it is, with its type", async () => {
    const { client, requests } = await misbehaving([lines(1)]);
    const file = new Blob(["user_id,value\nada,1\n"], { type: "text/csv" });
    await client.import_history({ features: "visits", body: file });
    assert.equal(requests[0].headers["content-type"], "text/csv");
    assert.equal(requests[0].body, "user_id,value\nada,1\n");
});

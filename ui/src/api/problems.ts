/** The body of every failed request (RFC 9457). */
type Problem = {
  type: string;
  title: string;
  status: number;
  detail?: string | null;
  request_id?: string;
  [extension: string]: unknown;
};

/** A request that the server answered with a problem. */
export class ProblemError extends Error {
  override name = "ProblemError";

  constructor(
    readonly problem: Problem,
    readonly retryAfter: number | null = null,
  ) {
    super(problem.detail ?? problem.title);
  }

  get status(): number {
    return this.problem.status;
  }
}

/** A request that got no answer: the server is down, or the network is. */
export class UnreachableError extends Error {
  override name = "UnreachableError";

  constructor(cause: unknown) {
    super("The server does not answer.", { cause });
  }
}

/** Return the problem of a failed response; proxies in between may answer with something else. */
export async function problemOf(response: Response): Promise<ProblemError> {
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  const retryAfter = Number.isFinite(seconds) ? seconds : null;
  try {
    const body = (await response.json()) as Partial<Problem>;
    if (typeof body.title === "string") {
      return new ProblemError(
        { type: "about:blank", ...body, status: response.status } as Problem,
        retryAfter,
      );
    }
  } catch {
    // Not JSON: the status is all that is known.
  }
  const title = response.statusText || `HTTP ${response.status}`;
  return new ProblemError({ type: "about:blank", title, status: response.status }, retryAfter);
}

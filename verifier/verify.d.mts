/** A step of the verification: null if it could not be checked. */
export type Check = {
    check: "hash" | "signature" | "disclosures" | "content" | "reassembly" | "link";
    ok: boolean | null;
    detail: string;
    fault?: string;
};

/** The report of an outcome has its id; that of a record with outcomes has their reports. */
export type Report = {
    ok: boolean;
    signed: boolean;
    checks: Check[];
    outcome_id?: string;
    outcomes?: Report[];
};

export type Options = { keys?: string; expect?: string | null; signed?: boolean | null };

/** The text is not the document of a record or an outcome. */
export class DocumentError extends Error {}

export function verify(text: string, options?: Options): Promise<Report>;
export function verdict(report: Report): string;
export function canonical(value: unknown): string;
export function parse(text: string): unknown;

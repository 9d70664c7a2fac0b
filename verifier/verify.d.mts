/** A step of the verification: null if it could not be checked. */
export type Check = {
    check: "hash" | "signature" | "disclosures" | "content" | "reassembly";
    ok: boolean | null;
    detail: string;
    fault?: string;
};

export type Report = { ok: boolean; signed: boolean; checks: Check[] };

export type Options = { keys?: string; expect?: string | null; signed?: boolean | null };

/** The text is not the document of a record. */
export class DocumentError extends Error {}

export function verify(text: string, options?: Options): Promise<Report>;
export function verdict(report: Report): string;
export function canonical(value: unknown): string;
export function parse(text: string): unknown;

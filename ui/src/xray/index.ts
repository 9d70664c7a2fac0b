/** The X-ray of one context, for the record page and the playground. */
export { Proof } from "./Proof";
export { ProofBadge } from "./ProofBadge";
export { ProofLadder } from "./ProofLadder";
export { KeyField } from "./KeyField";
export { useKeys } from "./keys";
export { subjectOf, type Trace } from "./model";
export { useVerified, type Answer } from "./verification";
export { DownloadButton } from "./DownloadButton";
export { recordText } from "./exports";
export { Xray } from "./Xray";

import { IconCornerDownRight, IconPhoto } from "@tabler/icons-react";

import { count } from "~/design/format";

import css from "./messages.module.css";
import {
  imageAddress,
  imageWords,
  jsonText,
  parametersOf,
  type Blob,
  type Part,
  type Reasoning,
  type Tool,
} from "./parts";

const REASONING = 160;

type Props = {
  part: Part;
  /** Characters that are shown at most; null for all. */
  limit?: number | null;
};

/** A part of a message on the page, without anything that can be clicked: lists contain it. */
export function PartText({ part, limit = null }: Props) {
  switch (part.type) {
    case "text":
      return <Cut text={part.content} limit={limit} />;
    case "tool_call":
      return (
        <>
          <b className={css.name}>{part.name}</b>
          <span className={css.quiet}>(</span>
          <Cut text={jsonText(part.arguments)} limit={limit} />
          <span className={css.quiet}>)</span>
        </>
      );
    case "tool_call_response":
      return (
        <>
          <IconCornerDownRight size={14} className={css.arrow} aria-label="returned" />
          {part.is_error && <b className={css.failed}>failed: </b>}
          <Cut text={jsonText(part.response)} limit={limit} />
        </>
      );
    case "function":
      return <Signature tool={part} limit={limit} />;
    case "reasoning":
      return <Collapsed part={part} />;
    case "uri":
      return (
        <span className={css.image}>
          <IconPhoto size={16} aria-hidden />
          <span>
            {part.uri} <span className={css.quiet}>an image by its address, not loaded here</span>
          </span>
        </span>
      );
    case "blob":
      return <Thumbnail image={part} />;
  }
}

function Cut({ text, limit }: { text: string; limit: number | null }) {
  if (limit === null || text.length <= limit) return text;
  return (
    <>
      {text.slice(0, limit)}
      <span className={css.quiet}> … {count(text.length - limit)} more characters</span>
    </>
  );
}

function Signature({ tool, limit }: { tool: Tool; limit: number | null }) {
  const parameters = parametersOf(tool)
    .map(({ name, type, isRequired }) => `${name}${isRequired ? "" : "?"}: ${type}`)
    .join(", ");
  return (
    <>
      <b className={css.name}>{tool.name}</b>
      <span className={css.quiet}>
        (<Cut text={parameters} limit={limit} />)
      </span>
      {tool.description && (
        <span className={css.described}>
          <Cut text={tool.description} limit={limit} />
        </span>
      )}
    </>
  );
}

function Collapsed({ part: { content } }: { part: Reasoning }) {
  const first = content.trim().split("\n", 1)[0] ?? "";
  return (
    <i className={css.quiet}>
      {first.slice(0, REASONING)}
      {first.length < content.trim().length || first.length > REASONING
        ? ` … ${count(content.length)} characters of reasoning`
        : first === "" && "reasoning that only the provider can read"}
    </i>
  );
}

function Thumbnail({ image }: { image: Blob }) {
  const address = imageAddress(image);
  return (
    <span className={css.image}>
      {address === null ? (
        <IconPhoto size={16} aria-hidden />
      ) : (
        <img src={address} alt={`An image, ${imageWords(image)}`} className={css.thumbnail} />
      )}
      <span className={css.quiet}>
        {imageWords(image)}
        {address === null && ", not shown"}
      </span>
    </span>
  );
}

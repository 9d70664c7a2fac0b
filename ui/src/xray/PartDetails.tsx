import { Code, Id, KeyValues, Mono, UserText } from "~/design";
import { count, pretty } from "~/design/format";
import { imageAddress, imageWords, parametersOf, type Part } from "~/messages";

import { kindWord, type Placed } from "./lanes";
import type { TraceView } from "./model";
import css from "./PartDetails.module.css";
import { useSelection } from "./selection";

type Props = { view: TraceView; placed: Placed };

/** What the selected item is in its message: what belongs to it, and the whole of what rows cut. */
export function PartDetails({ view, placed }: Props) {
  const { message, part, together, half } = placed;
  const losses = view.trace.losses.filter(({ item }) => item === placed.place);
  const rest = together.filter((place) => place !== half);
  return (
    <div className={css.part}>
      <KeyValues
        rows={[
          ["Message", messageWords(placed)],
          ["Call id", callId(part)],
          [
            message.kind === "tool_call" ? "Result" : "Call",
            half === null ? missingHalf(placed) : <Jump view={view} place={half} />,
          ],
          [
            view.items[view.indexOf(placed.place)]?.isDropped ? "Dropped with" : "Kept with",
            rest.length === 0 ? null : <Jumps view={view} places={rest} />,
          ],
          ["Prompt cache", message.cache ? "a provider may cache up to its end" : null],
          ["Losses", losses.length === 0 ? null : <LossList losses={losses} />],
        ]}
      />
      <Whole part={part} />
    </div>
  );
}

function messageWords({ lane, message }: Placed): string {
  if (lane === "tools") return "none: tools stand before all messages";
  return message.turn === null ? lane : `${lane}, turn ${count(message.turn)}`;
}

function callId(part: Part | null) {
  const isHalf = part?.type === "tool_call" || part?.type === "tool_call_response";
  return isHalf ? <Id value={part.id} /> : null;
}

function missingHalf({ message }: Placed): string | null {
  if (message.kind === "tool_call") return "none in this context";
  return message.kind === "tool_result" ? "not in this context" : null;
}

function Jumps({ view, places }: { view: TraceView; places: readonly number[] }) {
  return (
    <ul className={css.jumps}>
      {places.slice(0, 5).map((place) => (
        <li key={place}>
          <Jump view={view} place={place} />
        </li>
      ))}
      {places.length > 5 && <li>and {places.length - 5} more</li>}
    </ul>
  );
}

/** Selects another item. */
function Jump({ view, place }: { view: TraceView; place: number }) {
  const { select } = useSelection();
  const index = view.indexOf(place);
  const item = view.items[index];
  if (!item?.placed) return null;
  const { message, lane } = item.placed;
  const word = kindWord(item.placed);
  return (
    <button type="button" className={css.jump} onClick={() => select(index)}>
      {lane} {message.kind !== "text" && item.label !== word && `${word} `}
      <bdi>{item.label}</bdi>
      {item.isDropped && ", dropped"}
    </button>
  );
}

function LossList({ losses }: { losses: readonly { provider: string; name: string }[] }) {
  return (
    <ul className={css.jumps}>
      {losses.map(({ provider, name }) => (
        <li key={`${provider} ${name}`}>
          {provider}: <Mono>{name}</Mono>
        </li>
      ))}
    </ul>
  );
}

/** The whole of what a row shows in short. */
function Whole({ part }: { part: Part | null }) {
  switch (part?.type) {
    case "function":
      return (
        <Fold title={`Schema, ${count(parametersOf(part).length)} parameters`}>
          <Code text={pretty(part.parameters ?? null)} label="Copy the schema" />
        </Fold>
      );
    case "reasoning":
      return part.content === "" ? null : (
        <Fold title={`Reasoning, ${count(part.content.length)} characters`}>
          <Code text={part.content} label="Copy the reasoning" />
        </Fold>
      );
    case "tool_call":
      return (
        <Fold title="Arguments">
          <Code text={pretty(part.arguments ?? null)} label="Copy the arguments" />
        </Fold>
      );
    case "blob": {
      const address = imageAddress(part);
      return (
        <figure className={css.figure}>
          {address !== null && <img src={address} alt={`An image, ${imageWords(part)}`} />}
          <figcaption>
            {imageWords(part)} {part.digest && <Id value={part.digest} head={15} />}
          </figcaption>
        </figure>
      );
    }
    case "uri":
      return (
        <p className={css.address}>
          <UserText mono>{part.uri}</UserText>
          <br />
          Pages here ask no other host, so the image is not shown.
        </p>
      );
    default:
      return null;
  }
}

function Fold({ title, children }: { title: string; children: React.ReactNode }) {
  return (
    <details className={css.fold}>
      <summary>{title}</summary>
      {children}
    </details>
  );
}

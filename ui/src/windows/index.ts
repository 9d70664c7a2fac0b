/** Windows of time, as several pages show them. */
export { FamilyTable, type SubRow } from "./FamilyTable";
export {
  accuracyWords,
  cellText,
  coverageWords,
  coveredSince,
  drawn,
  gridsOf,
  hopMs,
  keyed,
  keyedText,
  nextToLeave,
  OTHER,
  spanMs,
  windowWords,
  type FamilyGrid,
  type Feature,
  type Member,
  type Tile,
} from "./model";

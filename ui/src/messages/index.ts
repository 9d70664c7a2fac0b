/** Messages with roles and parts, for the X-ray and for the answers of models. */
export { PartText } from "./PartText";
export {
  imageAddress,
  imageWords,
  parametersOf,
  parsedPart,
  type Blob,
  type Part,
  type Role,
} from "./parts";
export { RoleHead, type Lane } from "./RoleHead";

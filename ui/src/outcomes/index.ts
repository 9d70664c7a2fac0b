/** Answers of models, and what people and programs said about them. */
export { Answers } from "./Answers";

export const URL_ = process.env.HERMES_URL;
export const KEY = process.env.HERMES_KEY;
export const MODEL = "practice";

export function expect(found, what) {
  if (!found) {
    console.error(`missing: ${what}`);
    process.exit(1);
  }
}

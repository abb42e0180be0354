/** What both programs share. Exit status: 0; 1 where a classification failed; 2 wrong usage. */

import { basename } from 'node:path';
import { parseArgs } from 'node:util';

const OPTIONS = {
  url: { type: 'string' },
  'top-k': { type: 'string' },
  threshold: { type: 'string' },
  'timeout-s': { type: 'string' },
};

/** Read the command line; `topK` and `threshold` are undefined where they are not given. */
export function readCommandLine(defaultUrl) {
  try {
    const { values, positionals } = parseArgs({ options: OPTIONS, allowPositionals: true });
    if (positionals.length === 0) throw new Error('expected at least one PHOTO');
    return {
      photos: positionals,
      url: values.url ?? defaultUrl,
      topK: readNumber(values, 'top-k', 'an integer', Number.isSafeInteger),
      threshold: readNumber(values, 'threshold', 'a number', Number.isFinite),
      timeoutMs: Math.ceil(1000 * (readNumber(values, 'timeout-s', 'seconds above 0', isDuration) ?? 30)),
    };
  } catch (error) {
    const program = basename(process.argv[1]);
    console.error(`${program}: ${error.message}`);
    console.error(`usage: node ${program} PHOTO... [--url ${defaultUrl}] [--top-k K] [--threshold P] [--timeout-s S]`);
    process.exit(2);
  }
}

const isDuration = (seconds) => seconds > 0 && seconds < Infinity;

function readNumber(values, name, expected, isFit) {
  const text = values[name];
  if (text === undefined) return undefined;
  const value = text.trim() === '' ? NaN : Number(text);
  if (!isFit(value)) throw new Error(`--${name}: expected ${expected}, got '${text}'`);
  return value;
}

/** Print the classes of one photo, or why it has none. */
export function show(photo, { classes, error }) {
  if (error) return fail(photo, error);
  console.log(photo);
  for (const { classId, score, label } of classes) {
    console.log(`  ${(100 * score).toFixed(2).padStart(7)}%  ${String(classId).padStart(4)}  ${label}`);
  }
  if (classes.length === 0) console.log('  no class reaches the threshold');
}

/** Print a failure to standard error; the program goes on, and ends with status 1. */
export function fail(name, reason) {
  console.error(`${name}: ${reason}`);
  process.exitCode = 1;
}

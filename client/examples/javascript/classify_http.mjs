/** Classify image files over HTTP, one request a file, without any dependency. */

import { readFile } from 'node:fs/promises';

import { fail, readCommandLine, show } from './command_line.mjs';
import { readResults } from './pipeline_results.mjs';
import { binaryRequest, infer, rawRequest } from './triton_http.mjs';

const { photos, url, topK, threshold, timeoutMs } = readCommandLine('http://127.0.0.1:8000');

/** The simplest request that says all: a raw upload has no place for parameters. */
function request(file) {
  if (topK === undefined && threshold === undefined) return rawRequest(file);
  return binaryRequest('raw_image', file, { top_k: topK, threshold }); // JSON leaves out what is undefined
}

for (const photo of photos) {
  try {
    const outputs = await infer(url, 'pipeline', request(await readFile(photo)), timeoutMs);
    const [result] = readResults(outputs);
    show(photo, result);
  } catch (error) {
    fail(photo, error.message);
  }
}

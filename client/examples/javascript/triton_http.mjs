/**
 * Triton over HTTP with what Node brings along: the file's bytes in, the outputs back as binary, no base64, no JSON lists.
 * One file without imports, to copy into an application. The protocol: Triton's "binary tensor data extension",
 * https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
 */

// In a request and in a reply: how many bytes of JSON stand in front of the binary tensors.
const HEADER_LENGTH = 'Inference-Header-Content-Length';

/** Triton could not be reached, did not answer in time, or answered with an error. */
export class TritonError extends Error {}

/** A raw upload: the body is the model's one input, a batch of one, and nothing else. It has no place for parameters. */
export function rawRequest(bytes) {
  return { headers: { [HEADER_LENGTH]: '0' }, body: bytes };
}

/** The same with request parameters: a JSON header that describes the UINT8 input `name`, then its bytes. */
export function binaryRequest(name, bytes, parameters) {
  const input = {
    name,
    datatype: 'UINT8',
    shape: [1, bytes.length],
    parameters: { binary_data_size: bytes.length },
  };
  const header = Buffer.from(
    JSON.stringify({ inputs: [input], parameters: { ...parameters, binary_data_output: true } }),
  );
  return { headers: { [HEADER_LENGTH]: `${header.length}` }, body: Buffer.concat([header, bytes]) };
}

/**
 * Send a request to a model of the server at `url`.
 * Resolves to its outputs by name, each `{ shape, data }`; rejects with a TritonError.
 */
export async function infer(url, model, { headers, body }, timeoutMs = 30_000) {
  const { response, reply } = await post(`${url}/v2/models/${model}/infer`, headers, body, timeoutMs);
  const headerLength = response.headers.get(HEADER_LENGTH);
  if (!response.ok || headerLength === null) {
    throw new TritonError(`HTTP status ${response.status}: ${errorText(reply.toString())}`);
  }
  return decodeReply(reply, Number(headerLength));
}

async function post(url, headers, body, timeoutMs) {
  try {
    const response = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.timeout(timeoutMs) });
    return { response, reply: Buffer.from(await response.arrayBuffer()) };
  } catch (error) {
    // fetch only says "fetch failed"; why stands in its cause, which for a name with two addresses has but a code.
    const reason = error.cause?.message || error.cause?.code || error.message;
    throw new TritonError(`no answer from ${url}: ${reason}`, { cause: error });
  }
}

/** Triton's errors are `{"error": "..."}`; those of a proxy may be anything. */
function errorText(reply) {
  try {
    return JSON.parse(reply).error ?? reply;
  } catch {
    return reply;
  }
}

/** Read the body of a reply: `headerLength` bytes of JSON, then the outputs one after the other in its order. */
export function decodeReply(reply, headerLength) {
  const header = JSON.parse(reply.toString('utf8', 0, headerLength));
  const outputs = {};
  let start = headerLength;
  for (const output of header.outputs) {
    const end = start + output.parameters.binary_data_size;
    outputs[output.name] = decodeTensor(output, reply.subarray(start, end));
    start = end;
  }
  return outputs;
}

// Value by value, because Triton writes little-endian and at any offset, while an Int32Array over the reply would need
// an offset that is a multiple of 4.
const DECODERS = {
  INT32: (bytes) => Int32Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readInt32LE(4 * index)),
  FP32: (bytes) => Float32Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readFloatLE(4 * index)),
  BYTES: decodeStrings,
};

/** Read the bytes of one output, a Buffer; gRPC's raw_output_contents are the same. Throws a TritonError. */
export function decodeTensor({ name, datatype, shape }, bytes) {
  if (!(datatype in DECODERS)) {
    throw new TritonError(`${name}: expected one of ${Object.keys(DECODERS)}, got ${datatype}`);
  }
  const data = DECODERS[datatype](bytes);
  const expected = shape.reduce((product, size) => product * size, 1);
  if (data.length !== expected) {
    throw new TritonError(`${name}: expected ${expected} values of shape [${shape}], got ${data.length}`);
  }
  return { shape, data };
}

/** BYTES: before each string its length, 4 bytes. */
function decodeStrings(bytes) {
  const strings = [];
  for (let start = 0; start < bytes.length; ) {
    const end = start + 4 + bytes.readUInt32LE(start);
    strings.push(bytes.toString('utf8', start + 4, end));
    start = end;
  }
  return strings;
}

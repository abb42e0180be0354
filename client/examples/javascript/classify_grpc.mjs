/** Classify image files over gRPC, all in one request, which may hold as many as the ensemble's max_batch_size. */

import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

import { fail, readCommandLine, show } from './command_line.mjs';
import { readResults } from './pipeline_results.mjs';
import { decodeTensor } from './triton_http.mjs';

const UNLIMITED = -1; // gRPC's own limit on a reply is 4 MB

/** A connection to the server at `address`, HOST:PORT; to be closed. */
function connect(address) {
  const proto = fileURLToPath(new URL('triton.proto', import.meta.url));
  const { inference } = grpc.loadPackageDefinition(protoLoader.loadSync(proto, { keepCase: true, longs: Number }));
  return new inference.GRPCInferenceService(address, grpc.credentials.createInsecure(), {
    'grpc.max_send_message_length': UNLIMITED,
    'grpc.max_receive_message_length': UNLIMITED,
  });
}

/** A batch is one tensor [files, longest]: shorter files are padded with zeros. */
function inferRequest(files, { topK, threshold }) {
  const longest = Math.max(...files.map((file) => file.length));
  const batch = Buffer.alloc(files.length * longest);
  files.forEach((file, row) => file.copy(batch, row * longest));
  return {
    model_name: 'pipeline',
    inputs: [{ name: 'raw_image', datatype: 'UINT8', shape: [files.length, longest] }],
    raw_input_contents: [batch],
    parameters: {
      ...(topK !== undefined && { top_k: { int64_param: topK } }),
      ...(threshold !== undefined && { threshold: { double_param: threshold } }),
    },
  };
}

/** Outputs by name, each `{ shape, data }`; their bytes stand in raw_output_contents, in the same order. */
function decodeResponse({ outputs, raw_output_contents }) {
  return Object.fromEntries(
    outputs.map((output, index) => [output.name, decodeTensor(output, raw_output_contents[index])]),
  );
}

/** Read the files that can be read, and say which cannot. */
async function readPhotos(paths) {
  const photos = [];
  for (const path of paths) {
    try {
      photos.push({ path, file: await readFile(path) });
    } catch (error) {
      fail(path, error.message);
    }
  }
  return photos;
}

async function classify(client, photos, options) {
  const infer = promisify(client.ModelInfer).bind(client);
  const request = inferRequest(photos.map(({ file }) => file), options);
  const response = await infer(request, { deadline: Date.now() + options.timeoutMs });
  readResults(decodeResponse(response)).forEach((result, row) => show(photos[row].path, result));
}

const options = readCommandLine('127.0.0.1:8001');
const photos = await readPhotos(options.photos);
if (photos.length > 0) {
  const client = connect(options.url);
  try {
    await classify(client, photos, options);
  } catch (error) {
    fail(photos.map(({ path }) => path).join(', '), error.message);
  } finally {
    client.close();
  }
}

// The AI SDK: `streamText`, every part of its `fullStream`; the way `ui` makes messages of them (`readUIMessageStream`), as its
// chat hooks do. The tool has no `execute`, so one request is made.
import { readFileSync } from 'node:fs';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { jsonSchema, readUIMessageStream, stepCountIs, streamText, tool } from 'ai';

const given = JSON.parse(process.argv[2]);
const PARAMETERS = {
  type: 'object',
  properties: { path: { type: 'string' }, content: { type: 'string' } },
  required: ['path', 'content'],
  additionalProperties: false,
};
const KINDS = {
  text: ['text-delta'],
  'tool arguments': ['tool-input-delta'],
  reasoning: ['reasoning-delta'],
};

function modelOf(name) {
  const apiKey = 'nothing';
  switch (given.family) {
    case 'openai_chat':
      return createOpenAICompatible({ name: 'bench', baseURL: given.url + '/v1', apiKey })(name);
    case 'openai_responses':
      return createOpenAI({ baseURL: given.url + '/v1', apiKey }).responses(name);
    case 'anthropic_messages':
      return createAnthropic({ baseURL: given.url + '/v1', apiKey })(name);
    default:
      return createGoogleGenerativeAI({ baseURL: given.url + '/v1beta', apiKey })(name);
  }
}

async function read(entry) {
  let seen = 0;
  const wanted = KINDS[entry.kind];
  const result = streamText({
    model: modelOf(entry.model),
    prompt: 'Go on.',
    maxRetries: 0,
    stopWhen: stepCountIs(1),
    tools: { write: tool({ description: 'Write a file.', inputSchema: jsonSchema(PARAMETERS) }) },
    onError: ({ error }) => { throw error; },
  });
  if (given.way === 'ui') {
    let last;
    for await (const message of readUIMessageStream({ stream: result.toUIMessageStream() })) last = message;
    const call = last.parts.find((part) => part.type === 'tool-write');
    return JSON.stringify(call.input).length;
  }
  for await (const part of result.fullStream) {
    if (wanted.includes(part.type)) seen += (part.text ?? part.delta ?? '').length;
    else if (part.type === 'error') throw part.error;
  }
  return seen;
}

const manifest = JSON.parse(readFileSync(new URL('./node_modules/ai/package.json', import.meta.url)));
const found = { version: manifest.version };
const warmed = new Set();
for (const entry of given.cases) {
  if (!warmed.has(entry.kind)) {
    warmed.add(entry.kind);
    for (let i = 0; i < 20; i++) await read({ ...entry, model: given.warm[entry.kind] }); // for the compiler, too
  }
  const spent = [];
  for (let i = 0; i < entry.repeat; i++) {
    const before = process.cpuUsage();
    const seen = await read(entry);
    const { user, system } = process.cpuUsage(before);
    spent.push((user + system) / 1e6);
    const most = entry.characters * (entry.kind === 'tool arguments' ? 1.1 : 1.01);
    if (!(entry.kind === 'reasoning' && seen <= 5) && !(seen >= entry.characters * 0.99 && seen <= most)) {
      console.error(`${entry.key}: saw ${seen} characters of ${entry.characters}`);
      process.exit(1);
    }
  }
  spent.sort((a, b) => a - b);
  found[entry.key] = spent[Math.floor(spent.length / 2)];
}
console.log(JSON.stringify(found));

// The AI SDK: `streamText` with a tool that it runs itself, every part of its `fullStream`.
import { readFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { jsonSchema, stepCountIs, streamText, tool } from 'ai';

const given = JSON.parse(process.argv[2]);
const PARAMETERS = {
  type: 'object',
  properties: { key: { type: 'string', description: 'What to look up.' } },
  required: ['key'],
  additionalProperties: false,
};
const ANSWER = 'All of it is looked up.';

function spentSoFar() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

async function loop(entry, url) {
  const times = [];
  const filling = 'x'.repeat(Math.max(entry.result_bytes - 20, 0));
  const look = tool({
    description: 'Look something up.',
    inputSchema: jsonSchema(PARAMETERS),
    execute: async ({ key }) => {
      times.push(spentSoFar());
      return `${key} is here${filling}`;
    },
  });
  const before = spentSoFar();
  const result = streamText({
    model: createOpenAICompatible({ name: 'bench', baseURL: url + '/v1', apiKey: 'nothing' })(entry.model),
    instructions: 'You are a careful archivist.',
    prompt: 'Look everything up.',
    maxRetries: 0,
    stopWhen: stepCountIs(entry.steps + 5),
    tools: { look },
  });
  for await (const part of result.fullStream) if (part.type === 'error') throw part.error;
  const answer = await result.text;
  const spent = spentSoFar() - before;
  if (answer !== ANSWER) throw new Error(`${entry.key}: answered ${answer.slice(0, 200)}`);
  if (times.length !== entry.steps * entry.calls) throw new Error(`${entry.key}: ${times.length} calls ran`);
  const starts = times.filter((_, at) => at % entry.calls === 0);
  const tenth = Math.max(1, Math.floor((starts.length - 1) / 10));
  const [first, last] = [starts[tenth] - starts[0], starts.at(-1) - starts.at(-1 - tenth)];
  return [spent, last / tenth, last / first];
}

const manifest = JSON.parse(readFileSync(new URL('./node_modules/ai/package.json', import.meta.url)));
const found = { version: manifest.version };
for (let i = 0; i < 20; i++) {
  await loop({ ...given.cases[0], model: given.warm, steps: 3, calls: 1 }, `${given.url}/run/${randomUUID()}`);
}
for (const entry of given.cases) {
  const [spent, last, flat] = await loop(entry, `${given.url}/run/${randomUUID()}`);
  found[entry.key] = spent;
  found[entry.key + ' last'] = last;
  found[entry.key + ' flat'] = flat;
}
console.log(JSON.stringify(found));

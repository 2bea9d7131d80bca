// The AI SDK: `streamText` with the history as its messages.
import { readFileSync } from 'node:fs';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { jsonSchema, streamText, tool } from 'ai';

const given = JSON.parse(process.argv[2]);
const PARAMETERS = {
  type: 'object',
  properties: { key: { type: 'string', description: 'What to look up.' } },
  required: ['key'],
  additionalProperties: false,
};
const RESULT = 'here it is, as it was found: ' + 'x'.repeat(170);
const LOOK = tool({ description: 'Look something up.', inputSchema: jsonSchema(PARAMETERS) });

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

function historyOf(steps) {
  const messages = [{ role: 'user', content: 'Look everything up.' }];
  for (let number = 0; number < steps; number++) {
    const call = { toolCallId: `call_${number}`, toolName: 'look' };
    messages.push({ role: 'assistant', content: [{ type: 'tool-call', ...call, input: { key: `item ${number}` } }] });
    const output = { type: 'text', value: RESULT };
    messages.push({ role: 'tool', content: [{ type: 'tool-result', ...call, output }] });
  }
  messages.push({ role: 'assistant', content: 'All of it is looked up.' }, { role: 'user', content: 'Go on.' });
  return messages;
}

async function ask(entry, messages) {
  const result = streamText({
    model: modelOf(entry.model),
    instructions: 'You are a careful archivist.',
    messages,
    maxRetries: 0,
    tools: { look: LOOK },
  });
  for await (const part of result.fullStream) if (part.type === 'error') throw part.error;
  const text = await result.text;
  if (text !== 'Done.') throw new Error(`${entry.key}: answered ${text.slice(0, 200)}`);
}

const manifest = JSON.parse(readFileSync(new URL('./node_modules/ai/package.json', import.meta.url)));
const found = { version: manifest.version };
for (let i = 0; i < 30; i++) await ask(given.cases[0], historyOf(20)); // for the compiler, too
for (const entry of given.cases) {
  const spent = [];
  for (let i = 0; i < entry.repeat; i++) {
    const messages = historyOf(entry.steps);
    const before = process.cpuUsage();
    await ask(entry, messages);
    const { user, system } = process.cpuUsage(before);
    spent.push((user + system) / 1e6);
  }
  spent.sort((a, b) => a - b);
  found[entry.key] = spent[Math.floor(spent.length / 2)];
}
console.log(JSON.stringify(found));

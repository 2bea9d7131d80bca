// The AI SDK as a judge of streams: one question a line of standard input, what its user gets a line of standard output.
import { createInterface } from 'node:readline';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, jsonSchema, streamText, tool } from 'ai';

function modelOf({ family, url, model }) {
  const apiKey = 'none';
  switch (family) {
    case 'openai_chat':
      return createOpenAICompatible({ name: 'judge', baseURL: url + '/v1', apiKey, includeUsage: true })(model);
    case 'openai_responses':
      return createOpenAI({ baseURL: url + '/v1', apiKey }).responses(model);
    case 'anthropic_messages':
      return createAnthropic({ baseURL: url + '/v1', apiKey })(model);
    default:
      return createGoogleGenerativeAI({ baseURL: url + '/v1beta', apiKey })(model);
  }
}

// The server's own error: a status, or an error event of the stream. Everything else is a crash.
function isTold(error) {
  if (APICallError.isInstance(error)) return error.statusCode >= 400;
  return !(error instanceof Error) || error.name === 'AI_StreamProviderError';
}

const failed = (error) => ({ error: String(error?.message ?? JSON.stringify(error)), told: isTold(error) });

function heard(text, calls, finish) {
  const listed = calls.map(({ toolCallId, toolName, input, invalid }) => ({
    id: toolCallId,
    name: toolName,
    arguments: input,
    readable: invalid !== true || typeof input !== 'string', // a call of a tool that was not on offer counts as invalid, too
  }));
  return { text, calls: listed, finish };
}

async function ask(given) {
  const any = tool({ inputSchema: jsonSchema({ type: 'object', properties: {} }) });
  const asked = {
    model: modelOf(given),
    messages: [{ role: 'user', content: given.question }],
    tools: Object.fromEntries(given.tools.map((name) => [name, any])),
    maxOutputTokens: given.limit,
    maxRetries: 0,
    abortSignal: AbortSignal.timeout(given.limit_ms),
  };
  if (!given.streamed) {
    const result = await generateText(asked);
    return heard(result.text, result.toolCalls, result.finishReason);
  }
  const result = streamText({ ...asked, onError: () => {} });
  const calls = [];
  let text = '';
  let finish = 'none';
  for await (const part of result.fullStream) {
    if (part.type === 'error') return failed(part.error);
    if (part.type === 'abort') return failed(new Error('no end in time'));
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'tool-call') calls.push(part);
    if (part.type === 'finish') finish = part.finishReason;
  }
  return heard(text, calls, finish);
}

process.on('unhandledRejection', () => {});
for await (const line of createInterface({ input: process.stdin })) {
  const told = await ask(JSON.parse(line)).catch(failed);
  process.stdout.write(JSON.stringify(told) + '\n');
}

// @anthropic-ai/sdk of npm, with a tool: `node PROGRAM API URL MODEL STREAMED PROMPT`. It prints the answer's text.
import { createRequire } from "node:module"

const Anthropic = createRequire(`${process.env.NODE_PATH}/`)("@anthropic-ai/sdk")
const [, url, model, streamed, prompt] = process.argv.slice(2)
const client = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 })
const input_schema = { type: "object", properties: { place: { type: "string" } }, required: ["place"] }

async function ask(messages) {
  const asked = { model, max_tokens: 1000, messages, tools: [{ name: "look", description: "Look.", input_schema }] }
  const message = streamed === "yes" ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked)
  const calls = message.content.filter((block) => block.type === "tool_use")
  if (!calls.length) return message.content.map((block) => block.text ?? "").join("")
  const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: `quiet at the ${call.input.place}` }))
  return ask([...messages, { role: "assistant", content: message.content }, { role: "user", content: results }])
}

console.log(await ask([{ role: "user", content: prompt }]))

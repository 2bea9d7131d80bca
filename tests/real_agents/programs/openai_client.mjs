// openai of npm, with a tool: `node PROGRAM API URL MODEL STREAMED PROMPT`. It prints the answer's text.
import { createRequire } from "node:module"

const OpenAI = createRequire(`${process.env.NODE_PATH}/`)("openai")
const [api, url, model, streamed, prompt] = process.argv.slice(2)
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 })
const parameters = { type: "object", properties: { place: { type: "string" } }, required: ["place"], additionalProperties: false }
const look = (given) => `quiet at the ${JSON.parse(given).place}`

async function chat(messages) {
  const tools = [{ type: "function", function: { name: "look", description: "Look.", parameters } }]
  const asked = { model, messages, tools }
  const answer = streamed === "yes"
    ? await client.chat.completions.stream(asked).finalChatCompletion()
    : await client.chat.completions.create(asked)
  const message = answer.choices[0].message
  if (!message.tool_calls?.length) return message.content
  const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: look(call.function.arguments) }))
  return chat([...messages, message, ...results])
}

async function responses(input) {
  const tools = [{ type: "function", name: "look", description: "Look.", parameters, strict: true }]
  const asked = { model, input, tools, store: false }
  const answer = streamed === "yes" ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked)
  const calls = answer.output.filter((item) => item.type === "function_call")
  if (!calls.length) return answer.output_text
  const items = answer.output.map(({ parsed_arguments, ...item }) => item)
  const results = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: look(call.arguments) }))
  return responses([...input, ...items, ...results])
}

const first = [{ role: "user", content: prompt }]
console.log(api === "responses" ? await responses(first) : await chat(first))

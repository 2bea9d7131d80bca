// @google/genai of npm, with a tool: `node PROGRAM API URL MODEL STREAMED PROMPT`. It prints the answer's text.
import { createRequire } from "node:module"

const { GoogleGenAI } = createRequire(`${process.env.NODE_PATH}/`)("@google/genai")
const [, url, model, streamed, prompt] = process.argv.slice(2)
const client = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: url } })
const parametersJsonSchema = { type: "object", properties: { place: { type: "string" } }, required: ["place"] }
const config = { tools: [{ functionDeclarations: [{ name: "look", description: "Look.", parametersJsonSchema }] }] }

async function ask(contents) {
  const asked = { model, contents, config }
  const parts = []
  if (streamed === "yes") {
    for await (const chunk of await client.models.generateContentStream(asked)) {
      parts.push(...(chunk.candidates?.[0]?.content?.parts ?? []))
    }
  } else {
    parts.push(...(await client.models.generateContent(asked)).candidates[0].content.parts)
  }
  const calls = parts.filter((part) => part.functionCall)
  if (!calls.length) return parts.map((part) => part.text ?? "").join("")
  const results = calls.map(({ functionCall: { id, name, args } }) => ({
    functionResponse: { id, name, response: { output: `quiet at the ${args.place}` } },
  }))
  return ask([...contents, { role: "model", parts }, { role: "user", parts: results }])
}

console.log(await ask([{ role: "user", parts: [{ text: prompt }] }]))

// Drives the page in a browser, as a person with a keyboard would, and says in JSON what it saw. It judges nothing: the test does.
//
// Standard input: { chromium, modules, url, key, once, hostile, pictures }. `once` is the address of `turnwise look --usage`; with
// `pictures` it draws these (view, width, scheme, path) and does nothing else.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

const told = JSON.parse(readFileSync(0, "utf8"));
const require = createRequire(`${told.modules}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
FLAGS.push("--disable-background-networking", "--disable-component-update", "--disable-sync");
const WAIT_MS = 60_000;
const seen = { axe: [], unreached: [], unseen: [], wide: [], console: [], foreign: [], keys: [], csrf: {}, stored: [], views: [] };

const browser = await chromium.launch({ executablePath: told.chromium, args: FLAGS });

async function opened(url, width, scheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, reducedMotion: "reduce" });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  page.on("console", (message) => {
    // A refused sign-in and a session that is not there yet are lines of the browser's own.
    if (["error", "warning"].includes(message.type()) && !/status of 401/.test(message.text())) seen.console.push(message.text());
  });
  page.on("pageerror", (error) => seen.console.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(new URL(url).origin)) seen.foreign.push(request.url());
    if (request.url().includes(told.key)) seen.keys.push(request.url());
  });
  await page.goto(url);
  return { context, page };
}

async function judge(page, where) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations);
  for (const one of found) seen.axe.push(`${where}: ${one.impact} ${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3)}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (wide > 0) seen.wide.push(`${where}: ${wide} px`);
}

const CONTROLS = "a[href], button:not(:disabled), input, select, textarea, summary, [tabindex='0']";

/** Each control that is seen is reached by Tab alone, and shows that it has the focus. */
async function walk(page, where, inside = "body") {
  const wanted = await page.evaluate(
    ([inside, controls]) => {
      const place = document.querySelector(inside);
      const own = [...place.querySelectorAll(controls)].filter((one) => one.checkVisibility());
      own.forEach((one, number) => one.setAttribute("data-walk", String(number)));
      document.activeElement?.blur();
      return own.map((one) => `${one.tagName} ${one.getAttribute("aria-label") ?? one.textContent.slice(0, 40)}`);
    },
    [inside, CONTROLS],
  );
  const reached = new Set();
  for (let step = 0; step < wanted.length + 6 && reached.size < wanted.length; step += 1) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const own = document.activeElement;
      const style = getComputedStyle(own);
      return { place: own.getAttribute("data-walk"), isShown: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 };
    });
    if (at.place === null) continue;
    reached.add(Number(at.place));
    if (!at.isShown) seen.unseen.push(`${where}: ${wanted[Number(at.place)]}`);
  }
  wanted.forEach((name, number) => reached.has(number) || seen.unreached.push(`${where}: ${name}`));
  await page.evaluate(() => document.querySelectorAll("[data-walk]").forEach((one) => one.removeAttribute("data-walk")));
}

async function press(page, name, exact = true) {
  const control = page.getByRole("button", { name, exact });
  await control.focus();
  await page.keyboard.press("Enter");
}

async function signIn(page) {
  await page.getByLabel("Admin key").waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.type(told.key);
  await page.keyboard.press("Enter");
  await page.getByRole("navigation").waitFor();
}

async function secrets(page, where) {
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
  if (kept !== JSON.stringify([{}, {}, "", await page.evaluate(() => location.href)])) seen.stored.push(`${where}: ${kept}`);
  if ((await page.content()).includes(told.key)) seen.keys.push(`${where}: on the page`);
}

async function everyView(page, where) {
  const names = await page.getByRole("navigation").getByRole("link").allTextContents();
  for (const name of names) {
    const link = page.getByRole("link", { name, exact: true });
    await link.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
    await page.getByText("Loading", { exact: true }).waitFor({ state: "detached" });
    if (name === "Live" && told.hostile) await page.getByText(told.hostile).first().waitFor();
    await judge(page, `${where} ${name}`);
    if (!where.endsWith("dark")) await walk(page, `${where} ${name}`); // colours change no control
    await secrets(page, `${where} ${name}`);
    const text = await page.locator("main").innerText();
    seen.views.push({ where, name, hostile: Boolean(told.hostile) && text.includes(told.hostile), text: text.slice(0, 4000) });
  }
}

/** Make, change, exchange and revoke a key without a mouse. */
async function administer(page, where, name) {
  await page.getByRole("link", { name: "Keys and budgets" }).focus();
  await page.keyboard.press("Enter");
  await page.getByText("Loading", { exact: true }).waitFor({ state: "detached" });
  await press(page, "Add a key");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await judge(page, `${where} dialog`);
  await dialog.getByLabel("Name").focus();
  await page.keyboard.type(name);
  await dialog.getByLabel("Team").focus();
  await page.keyboard.type("web");
  await press(page, "Add a limit");
  await dialog.getByLabel("Amount of usd/minute").focus();
  await page.keyboard.type("2.5");
  await walk(page, `${where} dialog`, "dialog");
  await press(page, "Add");
  const secret = dialog.locator(".secret");
  await secret.waitFor();
  const made = await secret.innerText();
  await judge(page, `${where} new key`);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  const again = (await page.content()).includes(made);
  await press(page, `Set key ${name}`);
  await dialog.getByLabel("Amount of usd/minute").fill("3");
  await dialog.getByLabel("Rights").focus();
  await page.keyboard.press("ArrowDown");
  await press(page, "Save");
  await dialog.waitFor({ state: "detached" });
  await press(page, `Rotate key ${name}`);
  await press(page, "Rotate");
  await secret.waitFor();
  const rotated = await secret.innerText();
  await press(page, "Close");
  await press(page, `Revoke key ${name}`);
  await judge(page, `${where} sure`);
  await press(page, "Revoke");
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("button", { name: `Revoke key ${name}` }).waitFor({ state: "detached" });
  return { made, rotated, again };
}

/** Pages of another port of this host, in the browser that is signed in. */
async function attack(context) {
  const server = createServer((_, response) => {
    response.setHeader("content-type", "text/html");
    response.end(`<form id=f method=post enctype="text/plain" action="${told.url}/admin/keys"><input name='{"name":"csrf-form","x":"' value='"}'></form>`);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}/`;
  const page = await context.newPage();
  await page.goto(url);
  const tries = await page.evaluate(async (own) => {
    const found = {};
    const ask = async (name, path, how) => {
      found[name] = await fetch(own + path, { credentials: "include", ...how }).then(
        (response) => `${response.type} ${response.status}`,
        () => "refused",
      );
    };
    await ask("read", "/page/owners", {});
    await ask("read blindly", "/page/owners", { mode: "no-cors" });
    await ask("change", "/admin/keys", { method: "POST", headers: { "content-type": "application/json" }, body: '{"name":"csrf-a"}' });
    await ask("change blindly", "/admin/keys", { method: "POST", mode: "no-cors", body: '{"name":"csrf-b"}' });
    await ask("revoke", "/admin/keys/ci", { method: "DELETE" });
    return found;
  }, told.url);
  const [answer] = await Promise.all([page.waitForNavigation(), page.evaluate(() => document.getElementById("f").submit())]);
  seen.csrf = { ...tries, form: answer?.status() ?? 0 };
  const framed = await context.newPage();
  await framed.goto(url);
  seen.csrf.frame = await framed.evaluate(
    (own) =>
      new Promise((resolve) => {
        const frame = document.createElement("iframe");
        frame.onload = () => resolve(frame.contentDocument === null ? "closed" : "open");
        frame.src = `${own}/`;
        document.body.append(frame);
      }),
    told.url,
  );
  server.close();
}

async function draw() {
  for (const { view, width, scheme, path } of told.pictures) {
    const { context, page } = await opened(told.url, width, scheme);
    await signIn(page);
    await page.goto(`${told.url}/#${view}`);
    await page.getByText("Loading", { exact: true }).waitFor({ state: "detached" });
    await page.getByRole("heading", { level: 2 }).first().waitFor();
    await page.screenshot({ path, animations: "disabled" });
    await context.close();
  }
}

try {
  if (told.pictures) await draw();
  else for (const [width, scheme] of [[375, "light"], [375, "dark"], [1440, "light"], [1440, "dark"]]) {
    const where = `${width} ${scheme}`;
    const { context, page } = await opened(told.url, width, scheme);
    await page.getByLabel("Admin key").waitFor();
    await judge(page, `${where} sign in`);
    await walk(page, `${where} sign in`);
    if (width === 375 && scheme === "light") {
      await page.getByLabel("Admin key").fill("tw-wrong");
      await page.keyboard.press("Enter");
      await page.getByRole("alert").waitFor();
      await judge(page, `${where} wrong key`);
      await page.reload();
    } else {
      await page.reload();
    }
    await signIn(page);
    await everyView(page, where);
    if (scheme === "light") seen[`made ${width}`] = await administer(page, where, `made-${width}`);
    if (width === 1440 && scheme === "dark") {
      await attack(context);
      await press(page, "Sign out");
      await page.getByLabel("Admin key").waitFor();
      seen.out = await page.evaluate(async () => (await fetch("/page/now")).status);
    }
    seen.hacked = seen.hacked || (await page.evaluate(() => "hacked" in window || document.querySelector("img, script:not([src])") !== null));
    await context.close();
  }
  if (told.once) {
    const { context, page } = await opened(told.once, 1440, "light");
    await page.getByRole("navigation").waitFor();
    seen.once = { address: page.url(), again: 0, links: await page.getByRole("link").allTextContents() };
    await everyView(page, "look");
    const other = await opened(told.once, 1440, "light");
    await other.page.getByLabel("Admin key").waitFor();
    seen.once.again = await other.page.getByRole("alert").innerText();
    await context.close();
  }
} catch (error) {
  seen.broke = String(error.stack ?? error);
} finally {
  await browser.close();
}
process.stdout.write(JSON.stringify(seen));

// Keeps the page up to date while its tab is looked at, and sends messages without leaving it. Everything works without this file, too.
"use strict";
const login = document.querySelector("#login");
if (login && location.hash.length > 1) {
  login.secret.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  login.querySelector("label").hidden = true;
  login.querySelector(".hint").textContent = "This link signs you in once.";
}

const waiting = new Map();
function show(id, html) {
  const old = document.getElementById(id);
  if (!old) return;
  // Whoever types or chooses there goes on; the newest state follows when they leave it.
  if (old.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) {
    waiting.set(id, html);
    return;
  }
  const opened = [...old.querySelectorAll("details[open]")].map((each) => each.id);
  const focused = old.contains(document.activeElement) ? document.activeElement.closest("[id]")?.id : null;
  const atEnd = innerHeight + scrollY >= document.body.scrollHeight - 80;
  const made = document.createElement("template");
  made.innerHTML = html;
  old.replaceWith(made.content);
  for (const each of opened) document.getElementById(each)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.querySelector("button, a, summary")?.focus();
  if (atEnd && (id === "growing" || id === "transcript")) scrollTo(0, document.body.scrollHeight);
}
addEventListener("focusout", () => setTimeout(() => {
  for (const [id, html] of [...waiting]) { waiting.delete(id); show(id, html); }
}));

let events = null, pause = 3000;
function follow() {
  if (document.hidden) { events?.close(); events = null; return; }
  if (events || !document.body.hasAttribute("data-live")) return;
  events = new EventSource(location.pathname + location.search);
  events.onmessage = (event) => { pause = 3000; const { id, html } = JSON.parse(event.data); show(id, html); };
  events.onerror = () => { if (events?.readyState === EventSource.CLOSED) { events = null; setTimeout(follow, pause); pause = Math.min(2 * pause, 60000); } };
}
document.addEventListener("visibilitychange", follow);
follow();

// A message to an open conversation is sent in the background, so that the page stays where it is.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("[data-write]") || form.action.endsWith("/conversations")) return;
  event.preventDefault();
  const button = form.querySelector("button.go");
  button.disabled = true;
  const answer = await fetch(form.action, { method: "POST", body: new FormData(form) }).catch(() => null);
  button.disabled = false;
  const problem = form.querySelector("[role=alert]");
  problem.textContent = "";
  if (!answer?.ok) {
    // The text stays: what was typed is not lost with a sign-in that has ended, or while the gateway starts again.
    const page = answer && new DOMParser().parseFromString(await answer.text(), "text/html");
    problem.textContent = page?.querySelector("main p")?.textContent ?? "The gateway does not answer. Your text is still here: send it again.";
    return;
  }
  form.text.value = "";
  if (form.files) form.files.value = "";
  form.once.value = crypto.randomUUID?.() ?? String(Math.random()).slice(2);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.form?.matches("[data-write]")) event.target.form.requestSubmit();
});

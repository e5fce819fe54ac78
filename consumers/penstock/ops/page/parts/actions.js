// The actions of the page. The worker tells which there are, and runs none without the token.
let actions = [];
const may = (name) => actions.includes("/api/" + name);
async function ask(name, body) {
  try {
    const answer = await fetch("api/" + name, { method: "POST", cache: "no-store",
      headers: { ...authorization(), "Content-Type": "application/json" }, body: JSON.stringify(body) });
    if (answer.headers.get("Content-Type")?.startsWith("application/json")) return await answer.json();
    return { ok: false, said: (await answer.text()).trim() || "status " + answer.status };
  } catch (error) {
    return { ok: false, said: "no answer: " + error.message };
  }
}
function button(text, key, action, name = "small") {
  const made = make("button", text, name);
  made.type = "button";
  made.dataset.key = key;
  made.addEventListener("click", () => action(made));
  return made;
}
// A button that acts only when it is clicked twice.
function twice(text, sure, key, action) {
  return button(text, key, (self) => {
    if (self.textContent === sure) {
      self.textContent = text;
      return action(self);
    }
    self.textContent = sure;
    setTimeout(() => self.textContent = text, 6000);
  });
}
function tell(output, answer) {
  output.textContent = answer.said || (answer.ok ? "done" : "it failed");
  output.className = answer.ok ? "" : "bad";
}

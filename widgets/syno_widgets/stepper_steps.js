// The lists of next steps of `Stepper`: by primitive, canonical ones and pruned ones with their rule, and the
// step that the reader combines by ticks. What things are called is said by `labels`. Everything shown is a trait; `told` carries what the reader does.

/** The distance after a step, as text: never by colour alone. No operator can be reached behind a dead end. */
function distanceText(item, labels) {
  const text = farText(item.distance, labels);
  if (item.distance === null) return `dead end: ${text}`;
  return item.reaches ? text : `dead end: ${text}, over budget`;
}

function farText(distance, labels) {
  if (distance === null) return "out of reach";
  return distance === 0 ? labels.reached : labels.far.replace("#", distance);
}

/** Of a group what uses one coordinate; a kernel lists that anew. */
function using(group, id) {
  const those = (items) => items.filter((item) => item.operands.includes(id) || item.given.includes(id));
  const some = { canonical: those(group.canonical), pruned: those(group.pruned) };
  return { ...group, ...some, more_canonical: 0, more_pruned: 0, unjudged: 0 };
}

/** The best step's distance: groups stand best first, those without a step at the end. */
function rank({ canonical }) {
  const [best] = canonical;
  if (!best) return Infinity;
  return best.distance === null ? 2e6 : best.distance + (best.reaches ? 0 : 1e6);
}

const BY_HAND = {
  sign: "×",
  colour: "var(--syno-share)",
  signature: "",
  meaning: "",
  canonical: [],
  pruned: [],
  more_canonical: 0,
  more_pruned: 0,
  unjudged: 0,
};

const NEAREST = " nearest"; // no primitive's name

class StepList {
  /** `told.ask(kind, more)` sends a message, `told.mark(ids, on)` marks coordinates in the picture. */
  constructor(model, told) {
    this.model = model;
    this.told = told;
    this.share = new Set();
    this.give = new Set();
    this.open = new Set([NEAREST]);
    this.element = make("div", { class: "syno-menu" });
    this.ground = new Ground(this.element);
  }

  stop() {
    this.ground.stop();
  }

  /** The lists are made anew for each state; returns the group that had the focus. */
  draw(chosen) {
    this.ground.look();
    this.revision = this.model.get("revision");
    const place = this.model.get("place");
    if (place !== this.place) {
      this.share.clear(); // what was ticked belonged to another place
      this.give.clear();
    }
    this.place = place;
    const group = document.activeElement?.closest?.("[data-group]");
    const had = group && this.element.contains(group) ? group.dataset.group : "";
    const nearest = this.element.querySelector(".syno-nearest")?.contains(document.activeElement);
    const known = new Set(this.model.get("ticks").map((tick) => tick.id));
    this.share = new Set([...this.share].filter((id) => known.has(id)));
    this.give = new Set([...this.give].filter((id) => known.has(id)));
    const live = this.model.get("live");
    const listed = live || !chosen ? this.model.get("menu") : this.model.get("menu").map((entry) => using(entry, chosen));
    const groups = [...listed].sort((one, other) => rank(one) - rank(other));
    const blocks = groups.map((entry) => this.group(entry, chosen));
    if (live && !chosen && groups.length > 1 && !("score" in this.model.get("quiz"))) blocks.unshift(...this.nearest());
    // A contraction can be put together by hand even where the budget lists none.
    const labels = this.labels();
    if (live && labels.hand_text && !groups.some((entry) => entry.primitive === labels.hand_group) && !chosen) {
      const byHand = this.group({ ...BY_HAND, primitive: labels.hand_group, title: labels.hand_title }, chosen);
      if (labels.hand_group) blocks.push(byHand);
      else blocks.unshift(byHand); // it belongs to no primitive
    }
    if (this.model.get("unlisted")) blocks.splice(0, blocks.length, this.unlisted());
    if (!blocks.length) blocks.push(make("p", { class: "syno-quiet" }, labels.none));
    this.element.replaceChildren(...blocks);
    this.drawPreview();
    if (this.share.size || this.give.size) this.askPreview();
    return had || (nearest ? NEAREST : "");
  }

  /** The best steps of all groups in one list, which is made when it is opened. */
  nearest() {
    const found = this.model.get("nearest");
    if (!found.length) return [];
    const list = make("ol", { class: "syno-items" });
    const details = make(
      "details",
      {
        class: "syno-nearest",
        open: this.open.has(NEAREST),
        ontoggle: () => {
          this.open[details.open ? "add" : "delete"](NEAREST);
          if (details.open) fill();
        },
      },
      make("summary", {}, make("b", {}, "Nearest of all")),
      list,
    );
    const fill = () =>
      list.replaceChildren(
        ...found.map((item) => {
          const sign = make("span", { class: "syno-sign", "aria-hidden": "true", title: item.title }, item.sign);
          sign.style.color = item.colour;
          return make("li", {}, this.step(item, sign));
        }),
      );
    if (details.open) fill();
    return [details];
  }

  labels() {
    return this.model.get("labels");
  }

  /** Why there is no list, and a button that has it made where nothing is under way. */
  unlisted() {
    const ask = make("button", { type: "button", "data-kind": "list", onclick: () => this.told.ask("list") }, "List the next steps");
    this.again = make("div", {}, make("p", { class: "syno-quiet" }, this.model.get("unlisted")), ask);
    this.drawUnlisted();
    return this.again;
  }

  drawUnlisted() {
    const button = this.again?.querySelector("button");
    if (button) button.hidden = !this.model.get("live") || Boolean(this.model.get("running").what);
  }

  summary(group) {
    if (group === NEAREST) return this.element.querySelector(".syno-nearest > summary");
    return this.element.querySelector(group ? `[data-group="${CSS.escape(group)}"] > summary` : "summary");
  }

  group(entry, chosen) {
    const count = entry.canonical.length + entry.more_canonical;
    const pruned = entry.pruned.length + entry.more_pruned;
    const reached = entry.canonical.filter((item) => item.distance !== null);
    const nearest = reached.length ? distanceText(reached[0], this.labels()) : "";
    const { hand_group: byHand, offered, refused } = this.labels();
    const isByHand = entry.primitive === byHand;
    const counted = ` ${count} ${offered}${entry.unjudged ? `; ${entry.unjudged} not looked at` : ""}`;
    const sign = make("span", { class: "syno-sign", "aria-hidden": "true" }, entry.sign);
    sign.style.color = entry.colour;
    const details = make(
      "details",
      {
        class: "syno-group",
        "data-group": entry.primitive,
        open: this.open.has(entry.primitive) || Boolean(chosen && count),
        ontoggle: (event) => {
          if (event.target !== details || chosen) return;
          this.open[details.open ? "add" : "delete"](entry.primitive);
        },
      },
      make(
        "summary",
        {},
        sign,
        make("b", {}, entry.title),
        entry.primitive ? make("span", { class: "syno-count" }, counted) : "",
        nearest ? make("span", { class: "syno-chip" }, nearest) : "",
      ),
      entry.signature ? make("p", { class: "syno-card" }, make("code", {}, entry.signature), ` ${entry.meaning}`) : "",
      isByHand && this.model.get("live") ? this.contraction() : "",
      entry.primitive ? this.items(entry.canonical, entry.more_canonical, false) : "",
      pruned
        ? make(
            "details",
            { class: "syno-pruned" },
            make("summary", { class: "syno-quiet" }, `${pruned} ${refused}`),
            this.items(entry.pruned, entry.more_pruned, true),
          )
        : "",
      this.whole(entry),
    );
    return details;
  }

  /** A button that has all steps of a primitive listed, where some are not. */
  whole(entry) {
    const rest = (entry.unjudged ?? 0) + entry.more_canonical + entry.more_pruned;
    if (!rest || !this.model.get("live")) return "";
    const all = rest + entry.canonical.length + entry.pruned.length;
    return make(
      "button",
      { type: "button", class: "syno-whole", "data-whole": entry.primitive, onclick: () => this.told.ask("whole", { name: entry.primitive }) },
      `Show all ${all}`,
    );
  }

  items(items, more, pruned) {
    // Where no step can be taken the list itself is reached by Tab, to be scrolled.
    const list = make("ul", { class: "syno-items", tabindex: this.model.get("live") ? undefined : "0" });
    for (const item of items) list.append(make("li", {}, pruned ? this.reason(item) : this.step(item)));
    if (more) list.append(make("li", { class: "syno-more" }, `and ${more} more, ${this.labels().more}`));
    return list;
  }

  /** The button that takes a step; `sign` stands before its words. */
  step(item, sign = "") {
    const mark = (on) => this.told.ghost(on ? item : null);
    const pruned = Boolean(item.rule);
    return make(
      "button",
      {
        type: "button",
        class: `syno-step${pruned ? " syno-off" : ""}`,
        "data-index": item.index,
        "data-text": item.text,
        "data-operands": item.operands.join(" "),
        "data-given": item.given.join(" "),
        disabled: !this.model.get("live") && typeof item.leads !== "number",
        onclick: () => (this.model.get("live") ? this.told.ask("step", { index: item.index }) : this.told.ask("go", { index: item.leads })),
        onmouseenter: () => mark(true),
        onmouseleave: () => mark(false),
        onfocus: () => mark(true),
        onblur: () => mark(false),
      },
      sign,
      make("span", { class: "syno-text" }, ...(pruned ? ["Take it all the same"] : asMath(item.text))),
      make("span", { class: `syno-distance${item.reaches ? "" : " syno-far"}` }, distanceText(item, this.labels())),
      this.notes(item),
    );
  }

  /** What a step makes and changes, a line for each, where its system says so. */
  notes(item) {
    return item.notes?.length ? make("span", { class: "syno-notes" }, ...item.notes.map((note) => make("span", {}, ...asMath(note)))) : "";
  }

  // -- why a step is pruned -------------------------------------------------------------------------------------------

  /** A quiet line, which opens to the rule with both expressions, and what can be taken. */
  reason(item) {
    const body = make("div", { class: "syno-reason-body" }, make("p", {}, item.reason));
    const rule = make("span", { class: "syno-why" }, `${this.labels().refused} by ${item.rule}`);
    const details = make(
      "details",
      {
        class: "syno-reason",
        "data-why": item.index,
        ontoggle: () => {
          if (details.open && this.model.get("live")) this.told.ask("why", { index: item.index });
        },
      },
      make("summary", {}, ...asMath(item.text), " ", rule),
      body,
      this.step(item),
    );
    return details;
  }

  drawWhy() {
    const found = this.model.get("why");
    if (!("index" in found)) return;
    const body = this.element.querySelector(`[data-why="${found.index}"] > .syno-reason-body`);
    if (!body) return;
    const formula = found.svg ? parsePicture(found.svg) : null;
    const section = found.section ? `; paper, section ${found.section}` : "";
    body.replaceChildren(
      make("p", {}, make("b", {}, found.rule), ` (${found.kind}${section}). ${found.reason}`),
      formula ? make("div", { class: "syno-frame", tabindex: "0", role: "group", "aria-label": "Both expressions" }, formula) : "",
      found.before ? make("p", { class: "syno-rewrite" }, make("code", {}, found.before), " → ", make("code", {}, found.after)) : "",
      found.here ? make("p", { class: "syno-rewrite" }, "Here: ", make("code", {}, found.here)) : "",
      found.instead
        ? make(
            "p",
            { class: "syno-instead" },
            "The canonical way: ",
            make("code", {}, found.instead),
            " ",
            make("button", { type: "button", "data-instead": found.index, onclick: () => this.told.ask("instead", { index: found.index }) }, "Take that instead"),
          )
        : "",
      found.latex
        ? make("button", { type: "button", onclick: () => copyText(found.latex) }, "Copy LaTeX")
        : "",
    );
  }

  // -- by hand ----------------------------------------------------------------------------------------------------

  contraction() {
    const labels = this.labels();
    const rows = this.model.get("ticks").map((tick) => {
      const box = (set, other, what) => {
        const input = make("input", {
          type: "checkbox",
          "data-tick": `${what}-${tick.id}`,
          "aria-label": `${labels.hand_columns[what === "share" ? 1 : 2]} ${tick.text} of size ${tick.size}`,
          disabled: !this.model.get("live"),
          onfocus: () => this.told.mark([tick.id], true),
          onblur: () => this.told.mark([tick.id], false),
          onchange: (event) => {
            set[event.target.checked ? "add" : "delete"](tick.id);
            if (event.target.checked && other.delete(tick.id)) {
              const twin = what === "share" ? "give" : "share";
              this.element.querySelector(`[data-tick="${twin}-${CSS.escape(tick.id)}"]`).checked = false;
            }
            this.askPreview();
          },
        });
        input.checked = set.has(tick.id);
        return make("td", {}, input);
      };
      return make(
        "tr",
        {},
        make("th", { scope: "row" }, make("code", {}, ...asMath(tick.text)), " : ", ...asMath(tick.size)),
        box(this.share, this.give, "share"),
        box(this.give, this.share, "give"),
      );
    });
    this.previewText = make("p", { class: "syno-preview", "aria-live": "polite" });
    this.button = make(
      "button",
      {
        type: "button",
        class: "syno-button",
        "data-kind": "contract",
        onclick: () => this.told.ask("contract", { share: this.ordered(this.share), give: this.ordered(this.give) }),
      },
      labels.hand_button,
    );
    this.button.hidden = !labels.hand_button;
    this.choices = make("ul", { class: "syno-items syno-choices" });
    return make(
      "fieldset",
      { class: "syno-contraction" },
      make("legend", {}, labels.hand_text),
      make(
        "table",
        {},
        make(
          "thead",
          {},
          make("tr", {}, ...labels.hand_columns.map((name) => make("th", { scope: "col" }, name))),
        ),
        make("tbody", {}, ...rows),
      ),
      this.previewText,
      this.choices,
      this.button,
    );
  }

  /** One of several steps that are ticked alike: the button that takes it. */
  choice(choice) {
    return make(
      "button",
      {
        type: "button",
        class: `syno-step${choice.canonical ? "" : " syno-off"}`,
        "data-choice": choice.name,
        disabled: !this.model.get("live") || !choice.legal,
        onclick: () => this.told.ask("contract", { share: this.ordered(this.share), give: this.ordered(this.give), name: choice.name }),
      },
      make("span", { class: "syno-text" }, ...asMath(choice.text)),
      make("span", { class: "syno-distance" }, farText(choice.distance, this.labels())),
      this.notes(choice),
      choice.reason ? make("span", { class: "syno-why" }, choice.reason) : "",
    );
  }

  ordered(set) {
    return this.model.get("ticks").map((tick) => tick.id).filter((id) => set.has(id));
  }

  askPreview() {
    this.told.ask("preview", { share: this.ordered(this.share), give: this.ordered(this.give) });
  }

  drawPreview() {
    if (!this.previewText) return;
    const preview = this.model.get("preview");
    const has = "legal" in preview;
    this.button.disabled = !has || !preview.legal;
    this.previewText.classList.toggle("syno-off", has && !preview.canonical);
    this.choices.replaceChildren(...(preview.choices ?? []).map((choice) => make("li", {}, this.choice(choice))));
    if (!has) this.previewText.textContent = this.labels().hand_nothing;
    else if (!preview.legal) writeMath(this.previewText, `Not possible. ${preview.text}`);
    else {
      const far = farText(preview.distance, this.labels());
      const words = preview.canonical && !preview.choices ? "" : preview.text;
      writeMath(this.previewText, `${preview.canonical ? "Canonical" : "Not canonical"}: ${far}. ${words}`);
    }
  }
}

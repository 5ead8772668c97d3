// Builds elements. Text is always text: nothing here reads HTML, so nothing that a model or a client says becomes markup.

/** Return an element; attributes that are functions become listeners, false and null are left out. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  apply(element, attributes);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/** Return an element of a drawing. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  apply(element, attributes);
  element.append(...children.flat(Infinity).filter(Boolean));
  return element;
}

function apply(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.replace(/^on/, ''), value);
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
}

/** Replace what is inside an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Say something to screen readers. */
export function announce(text) {
  document.getElementById('announcer').textContent = text;
}

/** Return a button that copies what `text` returns; it may be a promise. */
export function copyButton(text, label = 'Copy') {
  const button = h('button', { type: 'button', class: 'quiet', onclick: copy }, label);
  async function copy() {
    try {
      await navigator.clipboard.writeText(await text());
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Cannot copy';
    }
    announce(button.textContent);
    setTimeout(() => { button.textContent = label; }, 1500);
  }
  return button;
}

/** Return what is shown in place of data that cannot be read. */
export function problem(error, retry) {
  return h('p', { class: 'problem', role: 'alert' }, error.message,
    retry && [' ', h('button', { type: 'button', class: 'quiet', onclick: retry }, 'Try again')]);
}

/** Return a tab list over panels that are built when they are chosen. */
export function tabs(label, panels) {
  const panel = h('div', { role: 'tabpanel', tabindex: '0', 'aria-label': label });
  const buttons = panels.map(([name], index) => h('button', {
    type: 'button', role: 'tab', 'aria-selected': 'false', tabindex: '-1',
    onclick: () => choose(index),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose((index + step + panels.length) % panels.length, true);
    },
  }, name));
  function choose(index, focus = false) {
    buttons.forEach((button, at) => {
      button.setAttribute('aria-selected', String(at === index));
      button.tabIndex = at === index ? 0 : -1;
    });
    panel.setAttribute('aria-label', `${label}: ${panels[index][0]}`);
    fill(panel, panels[index][1]());
    if (focus) buttons[index].focus();
  }
  choose(0);
  return h('div', { class: 'tabs' }, h('div', { role: 'tablist', 'aria-label': label }, buttons), panel);
}

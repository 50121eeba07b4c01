// Shows at once what a browser would show of a title after a while, and on touch not at all.
const tip = document.createElement("div");
tip.className = "tip";
document.body.append(tip);
for (const hot of document.querySelectorAll(".hot")) {
  const title = hot.querySelector("title");
  const text = title.textContent;
  title.remove();
  const show = (event) => {
    tip.textContent = text;
    tip.style.display = "block";
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, room)) + "px";
    tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
  };
  hot.addEventListener("pointermove", show);
  hot.addEventListener("pointerdown", show);
  hot.addEventListener("pointerleave", () => { tip.style.display = "none"; });
}

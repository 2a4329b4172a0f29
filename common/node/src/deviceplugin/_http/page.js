
setInterval(async () => {
  if (document.hidden) return;
  const state = document.getElementById("state");
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of ["main", "#state"])
      document.querySelector(part).replaceWith(page.querySelector(part));
    document.title = page.title;
  } catch {
    if (!state.dataset.lost) {
      state.dataset.lost = "yes";
      state.className = "bad";
      state.textContent = "no answer; last update: " + state.textContent;
    }
  }
}, 5000);

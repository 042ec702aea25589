"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const charts = [];

  const colours = (isDark) => ({
    text: isDark ? "#e7eaee" : "#1b1f24",
    grid: isDark ? "#3a424b" : "#d0d5db",
    raised: isDark ? "#1d2126" : "#ffffff",
  });

  const themed = (layout, isDark) => {
    const { text, grid, raised } = colours(isDark);
    const found = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, family: "system-ui, sans-serif", size: 12 },
      hoverlabel: { ...layout.hoverlabel, bgcolor: raised, bordercolor: grid, font: { color: text } },
    };
    for (const axis of ["xaxis", "yaxis"]) {
      found[axis] = { ...layout[axis], gridcolor: grid, linecolor: grid, tickcolor: grid };
    }
    return found;
  };

  const draw = (isDark) => {
    for (const { place, figure } of charts) {
      window.Plotly.react(place, figure.data, themed(figure.layout, isDark), {
        responsive: true,
        displaylogo: false,
        modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      });
    }
  };

  for (const place of document.querySelectorAll("[data-figure]")) {
    const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    charts.push({ place, figure });
  }
  if (charts.length) draw(dark.matches);
  dark.addEventListener("change", () => draw(dark.matches));
  window.addEventListener("beforeprint", () => draw(false));
  window.addEventListener("afterprint", () => draw(dark.matches));

  for (const button of document.querySelectorAll("[data-csv]")) {
    button.addEventListener("click", () => {
      const text = JSON.parse(document.getElementById("csv-" + button.dataset.csv).textContent);
      const address = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
      const link = document.createElement("a");
      link.href = address;
      link.download = button.dataset.csv + ".csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
    });
  }
})();

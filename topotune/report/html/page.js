"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const charts = [];

  const colours = (isDark) => ({
    text: isDark ? "#e7eaee" : "#1b1f24",
    grid: isDark ? "#3a424b" : "#d0d5db",
    faint: isDark ? "#a5aeb8" : "#57606a",
    raised: isDark ? "#1d2126" : "#ffffff",
  });

  const themed = (layout, isDark) => {
    const { text, faint, grid, raised } = colours(isDark);
    const found = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: faint, activecolor: text },
      font: { color: text, family: "system-ui, sans-serif", size: 12 },
      hoverlabel: { ...layout.hoverlabel, bgcolor: raised, bordercolor: grid, font: { color: text } },
    };
    for (const axis of ["xaxis", "yaxis"]) {
      found[axis] = { ...layout[axis], gridcolor: grid, linecolor: grid, tickcolor: grid };
    }
    return found;
  };

  const draw = ({ place, figure }, isDark) =>
    window.Plotly.react(place, figure.data, themed(figure.layout, isDark), {
      responsive: true,
      displaylogo: false,
      // Plotly would offer to upload a chart to its maker's servers: nothing leaves this page.
      plotlyServerURL: "",
      modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
    });

  const drawAll = (isDark) => {
    for (const chart of charts) draw(chart, isDark);
  };

  for (const place of document.querySelectorAll("[data-figure]")) {
    const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    charts.push({ place, figure });
  }
  // One chart a turn, from the top: the page can be read while the rest is drawn.
  const drawNext = (number) => {
    if (number === charts.length) {
      document.documentElement.dataset.drawn = "all";
      return;
    }
    draw(charts[number], dark.matches);
    setTimeout(drawNext, 0, number + 1);
  };
  setTimeout(drawNext, 0, 0);
  dark.addEventListener("change", () => drawAll(dark.matches));
  window.addEventListener("beforeprint", () => drawAll(false));
  window.addEventListener("afterprint", () => drawAll(dark.matches));

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

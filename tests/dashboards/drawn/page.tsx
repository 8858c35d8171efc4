// Draws one of the dashboards: ?board=NAME, and Grafana's own from=, to=, refresh= and var-NAME=. Everything drawn
// comes from the file and from Grafana's libraries. window.drawn tells a test how far the page is.
import { createTheme, ThemeContext } from "@grafana/data";
import { sceneGraph, sceneUtils, VizPanel } from "@grafana/scenes";
import { initPluginTranslations } from "@grafana/i18n";
import { config } from "@grafana/runtime";
import { GlobalStyles, Text } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router-dom";
import { fill } from "./fields";
import { sceneOf } from "./scene";
import { provide } from "./services";

async function load(path: string): Promise<any> {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function main(): Promise<void> {
  const asked = new URLSearchParams(location.search);
  await initPluginTranslations("grafana-scenes", []);
  const theme = createTheme({ colors: { mode: asked.get("theme") === "light" ? "light" : "dark" } });
  (config as any).theme2 = theme;
  fill();
  provide(await load("settings.json"));
  const board = await load(`boards/${asked.get("board")}.json`);
  const scene = sceneOf(board);
  sceneUtils.syncStateFromSearchParams(scene, asked);
  document.title = board.title;
  (window as any).drawn = () => ({
    variables: sceneGraph.getVariables(scene).state.variables.map((one: any) => ({
      name: one.state.name, value: String(one.getValueText()), options: one.state.options.length, loading: one.state.loading ?? false, error: one.state.error })),
    panels: sceneGraph.findAllObjects(scene, (one) => one instanceof VizPanel).map((one: any) => {
      const { data } = sceneGraph.getData(one).state;
      return { key: one.state.key, state: data?.state, errors: (data?.errors ?? []).map((error) => error.message), frames: data?.series.length ?? 0 };
    }),
  });
  createRoot(document.getElementById("page")!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <BrowserRouter>
        <div style={{ padding: 16, display: "flex", flexDirection: "column", gap: 8 }}>
          <Text element="h1">{board.title}</Text>
          <Text element="p">{board.description}</Text>
          <scene.Component model={scene} />
        </div>
      </BrowserRouter>
    </ThemeContext.Provider>);
}

main().catch((thrown) => { document.body.textContent = `error: ${thrown.stack}`; });

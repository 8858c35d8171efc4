// Makes a scene of Grafana's library from a dashboard's file, as Grafana itself does.
import { EmbeddedScene, DataSourceVariable, QueryVariable, SceneControlsSpacer, SceneDataTransformer, SceneGridItem, SceneGridLayout, SceneGridRow,
         SceneQueryRunner, SceneRefreshPicker, SceneTimePicker, SceneTimeRange, SceneVariableSet, VariableValueSelectors, VizPanel,
         behaviors } from "@grafana/scenes";

function variable(one: any): any {
  const common = { name: one.name, label: one.label, hide: one.hide, includeAll: one.includeAll, defaultToAll: Boolean(one.includeAll), isMulti: one.multi, allValue: one.allValue,
                   value: one.current?.value ?? "", text: one.current?.text ?? "", regex: one.regex ?? "" };
  if (one.type === "datasource") return new DataSourceVariable({ ...common, pluginId: one.query });
  if (one.type === "query") return new QueryVariable({ ...common, query: one.query, datasource: one.datasource, sort: one.sort, refresh: one.refresh });
  throw new Error(`this page has no variables of type ${one.type}`);
}

function panel(one: any): SceneGridItem {
  const queries = new SceneQueryRunner({ queries: one.targets, datasource: one.datasource, maxDataPoints: one.maxDataPoints, minInterval: one.interval,
                                         maxDataPointsFromWidth: true, dataLayerFilter: { panelId: one.id } });
  const { x, y, w, h } = one.gridPos;
  return new SceneGridItem({
    key: `item-${one.id}`, x, y, width: w, height: h,
    body: new VizPanel({ key: `panel-${one.id}`, title: one.title, description: one.description, pluginId: one.type, options: one.options ?? {},
                         fieldConfig: one.fieldConfig, pluginVersion: one.pluginVersion,
                         displayMode: one.transparent ? "transparent" : undefined, hoverHeader: !one.title,
                         $data: new SceneDataTransformer({ $data: queries, transformations: one.transformations ?? [] }) }),
  });
}

/** In a file, the panels of an open row come after it; those of a collapsed row are inside it. */
function children(board: any): (SceneGridItem | SceneGridRow)[] {
  const made: { row: any; items: SceneGridItem[] }[] = [{ row: null, items: [] }];
  for (const one of board.panels) {
    if (one.type === "row") made.push({ row: one, items: one.panels.map(panel) });
    else made[made.length - 1].items.push(panel(one));
  }
  return made.flatMap(({ row, items }) => row === null ? items : [
    new SceneGridRow({ key: `row-${row.id}`, title: row.title, y: row.gridPos.y, isCollapsed: row.collapsed, children: items })]);
}

export function sceneOf(board: any): EmbeddedScene {
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: board.time.from, to: board.time.to, timeZone: board.timezone || "browser" }),
    $variables: new SceneVariableSet({ variables: board.templating.list.map(variable) }),
    $behaviors: [new behaviors.CursorSync({ sync: board.graphTooltip })],
    controls: [new VariableValueSelectors({}), new SceneControlsSpacer(), new SceneTimePicker({}),
               new SceneRefreshPicker({ refresh: board.refresh })],
    body: new SceneGridLayout({ children: children(board), isLazy: false }),
  });
}

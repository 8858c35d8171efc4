// What Grafana's application gives to its libraries before anything is drawn: the data source, the panels, and how a
// query is run.
import { EventBusSrv, LoadingState, PluginType, toDataFrame, type DataQueryRequest, type DataSourceApi, type DataSourceInstanceSettings,
         type PanelData } from "@grafana/data";
import { config, setAppEvents, setDataSourceSrv, setPluginImportUtils, setRunRequest, setTemplateSrv, toDataQueryError } from "@grafana/runtime";
import { sceneGraph } from "@grafana/scenes";
import { catchError, from, map, of, startWith, type Observable } from "rxjs";
import { panels } from "./panels";
import { Prometheus } from "./prometheus";

export type Settings = { name: string; uid: string; type: string; url: string; jsonData: { timeInterval: string } };

function info(name: string) {
  return { author: { name }, description: "", links: [], logos: { large: "", small: "" }, screenshots: [], updated: "", version: "" };
}

function runRequest(source: DataSourceApi, request: DataQueryRequest): Observable<PanelData> {
  const known = { request, timeRange: request.range };
  return from(source.query(request)).pipe(
    map((answer) => ({ ...known, state: answer.state ?? LoadingState.Done, series: answer.data.map((frame) => toDataFrame(frame)),
                       errors: answer.errors, error: answer.errors?.[0] })),
    catchError((thrown) => of({ ...known, state: LoadingState.Error, series: [], errors: [toDataQueryError(thrown)], error: toDataQueryError(thrown) })),
    startWith({ ...known, state: LoadingState.Loading, series: [] }),
  ) as Observable<PanelData>;
}

export function provide(settings: Settings): void {
  const instance = { ...settings, id: 1, access: "proxy", readOnly: true, isDefault: true,
                     meta: { id: settings.type, name: settings.type, type: PluginType.datasource, metrics: true, module: "", baseUrl: "",
                             info: info(settings.type) } } as unknown as DataSourceInstanceSettings<any>;
  const source = new Prometheus(instance);
  setDataSourceSrv({
    async get(reference: any, scoped: any) {
      const asked = reference?.uid ?? reference;
      const uid = scoped?.__sceneObject ? sceneGraph.interpolate(scoped.__sceneObject.value.valueOf(), asked) : asked;
      if (uid !== settings.uid) throw new Error(`Datasource ${uid} was not found`);
      return source;
    },
    getList: ({ pluginId }: any = {}) => (pluginId && pluginId !== settings.type ? [] : [instance]),
    getInstanceSettings: () => instance,
    reload: () => {},
    registerRuntimeDataSource: () => {},
  } as any);
  setTemplateSrv({ replace: (text: string) => text, getVariables: () => [], containsTemplate: () => false, updateTimeRange: () => {} } as any);
  setAppEvents(new EventBusSrv());
  setRunRequest(runRequest as any);
  const plugins = panels();
  for (const [id, plugin] of Object.entries(plugins)) {
    plugin.meta = { id, name: id, type: PluginType.panel, sort: 0, module: "", baseUrl: "", info: info(id) } as any;
    config.panels[id] = plugin.meta as any;
  }
  setPluginImportUtils({
    async importPanelPlugin(id: string) {
      if (!plugins[id]) throw new Error(`this page has no panels of type ${id}`);
      return plugins[id];
    },
    getPanelPluginFromCache: (id: string) => plugins[id],
  });
}

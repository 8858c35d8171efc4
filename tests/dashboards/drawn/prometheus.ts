// A data source that asks Prometheus as Grafana's does. Half of Grafana's own runs in its server, so this imitates what
// it makes of the answers: a frame per series, named by the query's legend; one table for a query with that format; and
// the step and $__rate_interval.
import { DataSourceApi, FieldType, LoadingState, rangeUtil, type DataFrame, type DataQueryRequest, type DataQueryResponse,
         type DataSourceInstanceSettings, type MetricFindValue } from "@grafana/data";
import { sceneGraph } from "@grafana/scenes";

type Labels = Record<string, string>;
type Series = { metric: Labels; value?: [number, string]; values?: [number, string][] };
const MOST_POINTS = 11000; // of a series, by Prometheus

/** Escapes the special characters of regular expressions in a value, for a query's string. */
function escaped(value: string): string {
  return value.replace(/[\\^$*+?.()|[\]{}]/g, "\\\\$&");
}

/** Writes a variable's value into a query. A variable with "All" or with several values stands in a regular expression. */
function written(value: string | string[], variable: { multi?: boolean; includeAll?: boolean }): string {
  if (Array.isArray(value)) return value.length === 1 ? escaped(value[0]) : `(${value.map(escaped).join("|")})`;
  return variable.multi || variable.includeAll ? escaped(value) : value.replace(/\\/g, "\\\\").replace(/"/g, '\\"');
}

/** The name of a series. Undefined: Grafana's own rules for unnamed series apply. */
function named(labels: Labels, legend: string | undefined, expression: string): string | undefined {
  if (legend && legend !== "__auto") return legend.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? "");
  if (Object.keys(labels).length === 0) return expression;
  if (legend === "__auto") return undefined;
  const { __name__: name = "", ...others } = labels;
  return `${name}{${Object.entries(others).map(([label, value]) => `${label}="${value}"`).join(", ")}}`;
}

function frameOf(series: Series, query: any, step: number): DataFrame {
  const points = series.values ?? [series.value!];
  const displayNameFromDS = named(series.metric, query.legendFormat, query.expr);
  return {
    refId: query.refId, name: displayNameFromDS, length: points.length,
    fields: [
      { name: "Time", type: FieldType.time, values: points.map(([seconds]) => seconds * 1000), config: query.range ? { interval: step * 1000 } : {} },
      { name: "Value", type: FieldType.number, values: points.map(([, value]) => Number(value)), labels: series.metric,
        config: displayNameFromDS === undefined ? {} : { displayNameFromDS } },
    ],
  };
}

/** One row per series: time, labels, value. */
function tableOf(all: Series[], query: any): DataFrame {
  const labels = [...new Set(all.flatMap((series) => Object.keys(series.metric)))].sort();
  return {
    refId: query.refId, length: all.length,
    fields: [
      { name: "Time", type: FieldType.time, values: all.map((series) => series.value![0] * 1000), config: {} },
      ...labels.map((label) => ({ name: label, type: FieldType.string, values: all.map((series) => series.metric[label] ?? ""),
                                  config: { filterable: true } })),
      { name: "Value", type: FieldType.number, values: all.map((series) => Number(series.value![1])), config: {} },
    ],
  };
}

export class Prometheus extends DataSourceApi<any> {
  private url: string;

  constructor(settings: DataSourceInstanceSettings<any>) {
    super(settings);
    this.url = settings.url!;
    this.interval = settings.jsonData.timeInterval;
  }

  private async ask(path: string, parameters: Record<string, string>): Promise<any> {
    const answer = await fetch(`${this.url}/api/v1/${path}?${new URLSearchParams(parameters)}`);
    const body = await answer.json();
    if (body.status !== "success") throw new Error(`${body.errorType}: ${body.error}`);
    return body.data;
  }

  private async answered(query: any, request: DataQueryRequest<any>): Promise<DataFrame[]> {
    const scrape = rangeUtil.intervalToSeconds(this.interval!);
    const from = request.range.from.valueOf() / 1000, to = request.range.to.valueOf() / 1000;
    const step = Math.max(request.intervalMs / 1000, scrape, Math.ceil((to - from) / MOST_POINTS));
    const rate = `${Math.max(step + scrape, 4 * scrape)}s`;
    const scoped = { ...request.scopedVars, __interval: { text: `${step}s`, value: `${step}s` }, __rate_interval: { text: rate, value: rate } };
    const expr = sceneGraph.interpolate(request.scopedVars.__sceneObject!.value.valueOf(), query.expr, scoped, written);
    const asked = { ...query, expr };
    if (query.range) {
      const aligned = (time: number) => String(Math.floor(time / step) * step);
      const { result } = await this.ask("query_range", { query: expr, start: aligned(from), end: aligned(to), step: String(step) });
      return result.map((series: Series) => frameOf(series, asked, step));
    }
    const { result } = await this.ask("query", { query: expr, time: String(to) });
    if (query.format === "table") return result.length > 0 ? [tableOf(result, asked)] : [];
    return result.map((series: Series) => frameOf(series, asked, step));
  }

  async query(request: DataQueryRequest<any>): Promise<DataQueryResponse> {
    const answers = await Promise.allSettled(request.targets.map((query) => this.answered(query, request)));
    const errors = answers.flatMap((answer, i) => answer.status === "rejected"
      ? [{ refId: request.targets[i].refId, message: String(answer.reason.message ?? answer.reason) }] : []);
    const data = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    return errors.length > 0 ? { data, errors, state: LoadingState.Error } : { data, state: LoadingState.Done };
  }

  /** Answers the queries of variables: label_values(label) and label_values(series, label). */
  async metricFindQuery(asked: any, options: any): Promise<MetricFindValue[]> {
    const text = sceneGraph.interpolate(options.scopedVars.__sceneObject.value.valueOf(), asked.query ?? asked, options.scopedVars, written);
    const [, series, label] = /^label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)$/.exec(text) ?? [];
    if (label === undefined) throw new Error(`not a variable's query that this page knows: ${text}`);
    const parameters: Record<string, string> = { start: String(options.range.from.unix()), end: String(options.range.to.unix()) };
    if (series) parameters["match[]"] = series;
    return (await this.ask(`label/${label}/values`, parameters)).map((value: string) => ({ text: value }));
  }

  async testDatasource(): Promise<any> {
    return { status: "success", message: "" };
  }
}

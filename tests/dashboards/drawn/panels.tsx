// Grafana's panels are thin wrappers around what its libraries draw. The wrappers are not in the libraries, so this
// file imitates them.
import { FieldColorModeId, FieldConfigProperty, PanelPlugin, VizOrientation, getDisplayValueAlignmentFactors, getFieldDisplayValues, FieldType,
         cacheFieldDisplayNames, type FieldDisplay, type PanelProps } from "@grafana/data";
import { LegendDisplayMode, TooltipDisplayMode } from "@grafana/schema";
import { BigValue, BigValueTextMode, DataLinksContextMenu, TimeSeries, TooltipPlugin, VizRepeater, commonOptionsBuilder, useTheme2 } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { graphFields, tableFields } from "./fields";

function Nothing({ words }: { words?: string }) {
  return <div data-nothing style={{ height: "100%", display: "flex", alignItems: "center", justifyContent: "center" }}>{words ?? "No data"}</div>;
}

function Stat({ data, options, fieldConfig, width, height, replaceVariables, timeZone, renderCounter }: PanelProps<any>) {
  const theme = useTheme2();
  const values = () => getFieldDisplayValues({ fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: data.series,
                                               sparkline: options.graphMode !== "none", timeZone });
  const one = (value: FieldDisplay, size: { width: number; height: number; alignmentFactors: any; count: number }, more: object = {}) => (
    <BigValue value={value.display} width={size.width} height={size.height} count={size.count} sparkline={value.sparkline} theme={theme}
              colorMode={options.colorMode} graphMode={options.graphMode} justifyMode={options.justifyMode} textMode={options.textMode}
              alignmentFactors={size.alignmentFactors} text={options.text} {...more} />
  );
  return (
    <VizRepeater<FieldDisplay, any> source={data} width={width} height={height} renderCounter={renderCounter} itemSpacing={3} autoGrid
      orientation={options.orientation} getValues={values} getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={(size) => size.value.hasLinks && size.value.getLinks
        ? <DataLinksContextMenu links={size.value.getLinks}>{(api: any) => one(size.value, size, { onClick: api.openMenu, className: api.targetClassName })}</DataLinksContextMenu>
        : one(size.value, size)} />
  );
}

function Graph({ data, options, fieldConfig, width, height, timeRange, timeZone }: PanelProps<any>) {
  const frames = data.series.filter((frame) => frame.length > 0 && frame.fields.some((field) => field.type === FieldType.time) &&
                                               frame.fields.some((field) => field.type === FieldType.number));
  if (frames.length === 0) return <Nothing words={fieldConfig.defaults.noValue} />;
  return (
    <TimeSeries frames={frames} structureRev={data.structureRev} timeRange={timeRange} timeZone={timeZone} width={width} height={height}
                legend={options.legend} options={options}>
      {(plot: any, aligned: any) => options.tooltip?.mode === TooltipDisplayMode.None ? null : (
        <TooltipPlugin data={aligned} config={plot} mode={options.tooltip.mode} sortOrder={options.tooltip.sort} timeZone={timeZone} />)}
    </TimeSeries>
  );
}

function Table({ data, options, fieldConfig, width, height, timeRange }: PanelProps<any>) {
  const frame = data.series[options.frameIndex ?? 0];
  if (!frame || frame.fields.length === 0 || frame.length === 0) return <Nothing />;
  cacheFieldDisplayNames(data.series); // without it columns have the names that they had before they were renamed
  return <TableNG data={frame} width={width} height={height} noHeader={!options.showHeader} sortBy={options.sortBy} cellHeight={options.cellHeight}
                  timeRange={timeRange} fieldConfig={fieldConfig} structureRev={data.structureRev} showTypeIcons={options.showTypeIcons} />;
}

export function panels(): Record<string, PanelPlugin> {
  const editor = () => null;
  const stat = new PanelPlugin<any>(Stat).useFieldConfig().setPanelOptions((builder) => {
    const option = (path: string, defaultValue: unknown) => builder.addCustomEditor({ id: path, path, name: path, defaultValue, editor });
    option("reduceOptions", { calcs: ["lastNotNull"], fields: "", values: false });
    option("orientation", VizOrientation.Auto);
    option("textMode", BigValueTextMode.Auto);
    option("colorMode", "value");
    option("graphMode", "area");
    option("justifyMode", "auto");
  });
  const timeseries = new PanelPlugin<any>(Graph).useFieldConfig({
    standardOptions: { [FieldConfigProperty.Color]: { settings: { byValueSupport: true, bySeriesSupport: true },
                                                      defaultValue: { mode: FieldColorModeId.PaletteClassic } } },
    useCustomConfig: graphFields,
  }).setPanelOptions((builder) => {
    commonOptionsBuilder.addTooltipOptions(builder);
    commonOptionsBuilder.addLegendOptions(builder);
  });
  const table = new PanelPlugin<any>(Table).useFieldConfig({ useCustomConfig: tableFields }).setPanelOptions((builder) => {
    builder.addCustomEditor({ id: "showHeader", path: "showHeader", name: "", defaultValue: true, editor });
    builder.addCustomEditor({ id: "cellHeight", path: "cellHeight", name: "", defaultValue: "sm", editor });
  });
  return { stat, timeseries, table } as Record<string, PanelPlugin>;
}

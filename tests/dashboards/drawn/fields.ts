// The registries that Grafana's application fills before a panel is made. No editor is ever shown here, but the entries
// apply the options.
import * as data from "@grafana/data";
import { GraphDrawStyle, GraphGradientMode, LineInterpolation, StackingMode, VisibilityMode } from "@grafana/schema";
import { commonOptionsBuilder } from "@grafana/ui";

const EDITORS = ["text", "number", "slider", "boolean", "select", "radio", "color", "unit", "strings", "stats-picker", "field-name", "links",
                 "actions", "mappings", "thresholds", "fieldColor", "timezone", "multi-select", "data-links"];
const editor = () => null;

function standardFields(): any[] {
  const entry = (path: string, process: any, more: object = {}) => ({ id: path, path, name: path, editor, override: editor, process, settings: {},
                                                                       shouldApply: () => true, ...more });
  return [
    entry("displayName", data.displayNameOverrideProcessor, { settings: { expandTemplateVars: true } }),
    entry("unit", data.unitOverrideProcessor),
    entry("min", data.numberOverrideProcessor),
    entry("max", data.numberOverrideProcessor),
    entry("fieldMinMax", data.booleanOverrideProcessor),
    entry("decimals", data.numberOverrideProcessor, { settings: { integer: true } }),
    entry("noValue", data.stringOverrideProcessor),
    entry("color", data.identityOverrideProcessor, { defaultValue: { mode: data.FieldColorModeId.Thresholds } }),
    entry("mappings", data.valueMappingsOverrideProcessor, { defaultValue: [] }),
    entry("thresholds", data.thresholdsOverrideProcessor, {
      defaultValue: { mode: data.ThresholdsMode.Absolute, steps: [{ value: -Infinity, color: "green" }, { value: 80, color: "red" }] } }),
    entry("links", data.dataLinksOverrideProcessor),
    entry("actions", data.identityOverrideProcessor),
    entry("filterable", data.booleanOverrideProcessor),
  ];
}

export function fill(): void {
  data.standardEditorsRegistry.setInit(() => EDITORS.map((id) => ({ id, name: id, editor })));
  data.standardFieldConfigEditorRegistry.setInit(standardFields);
  const transformers = new Map(Object.values(data.standardTransformers).map((one) => [one.id as string, one])); // some stand there by two names
  data.standardTransformersRegistry.setInit(() => [...transformers.values()].map((transformation) => ({
    id: transformation.id, name: transformation.name, transformation, editor, imageDark: "", imageLight: "" })) as any);
}

/** The fields of a graph with their defaults. Grafana defines them in its panel, which is not in its libraries. */
export function graphFields(builder: any): void {
  const field = (path: string, defaultValue: unknown) =>
    builder.addCustomEditor({ id: path, path, name: path, defaultValue, editor, override: editor, process: data.identityOverrideProcessor,
                              shouldApply: () => true, settings: {} });
  field("drawStyle", GraphDrawStyle.Line);
  field("lineInterpolation", LineInterpolation.Linear);
  field("lineWidth", 1);
  field("fillOpacity", 0);
  field("gradientMode", GraphGradientMode.None);
  field("lineStyle", undefined);
  field("spanNulls", false);
  field("showPoints", VisibilityMode.Auto);
  field("pointSize", 5);
  field("barAlignment", 0);
  field("thresholdsStyle", undefined);
  field("transform", undefined);
  commonOptionsBuilder.addStackingConfig(builder, { mode: StackingMode.None, group: "A" });
  commonOptionsBuilder.addAxisConfig(builder, {});
  commonOptionsBuilder.addHideFrom(builder);
}

/** The same for a table. */
export function tableFields(builder: any): void {
  for (const [path, defaultValue] of Object.entries({ cellOptions: { type: "auto" }, align: "auto", inspect: false, width: undefined, minWidth: undefined,
                                                      hideFrom: { viz: false }, filterable: undefined, footer: { reducers: [] } })) {
    builder.addCustomEditor({ id: path, path, name: path, defaultValue, editor, override: editor, process: data.identityOverrideProcessor,
                              shouldApply: () => true, settings: {} });
  }
}

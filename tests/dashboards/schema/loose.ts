// Types of Grafana's Foundation SDK as a file has them: any part may be left out, and enumerations are their values. What is not in them is refused.
import type * as dashboard from "@grafana/grafana-foundation-sdk/dashboard";
import type * as prometheus from "@grafana/grafana-foundation-sdk/prometheus";
import type * as stat from "@grafana/grafana-foundation-sdk/stat";
import type * as table from "@grafana/grafana-foundation-sdk/table";
import type * as timeseries from "@grafana/grafana-foundation-sdk/timeseries";

type Loose<T> = unknown extends T
  ? T
  : T extends string
    ? `${T}`
    : T extends number | boolean
      ? T
      : T extends (infer E)[]
        ? Loose<E>[]
        : T extends object
          ? { [K in keyof T]?: Loose<T[K]> }
          : T;

export type Board = Loose<dashboard.Dashboard>;
export type Query = Loose<Omit<prometheus.Dataquery, "_implementsDataqueryVariant">>;
export type Options = {
  stat: Loose<stat.Options>;
  table: Loose<table.Options>;
  timeseries: Loose<timeseries.Options>;
};
export type Fields = { stat: never; table: Loose<table.FieldConfig>; timeseries: Loose<timeseries.FieldConfig> };

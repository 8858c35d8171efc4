// See report_style.h.
#include "report/report_style.h"

namespace lynx {

std::string_view ReportTemplate() {
  return R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<title>{{name}} · Lynx job</title>
<link rel="icon" href="data:,">
<style>
{{style}}</style>
</head>
<body>
<a class="skip" href="#run-title">Skip to the run</a>
<header class="top">
{{head}}</header>
<main>
{{main}}<footer>{{footer}}</footer>
</main>
</body>
</html>
)html";
}

// Kinds of spans and of memory have the same colours as on plan pages: the class c-X gives an SVG shape the colour that the
// class k-X gives a box on a plan page.
std::string_view ReportStyle() {
  return R"css(
.plots { overflow-x: auto; overflow-y: hidden; }
.plot { display: block; width: 100%; height: auto; font-size: 12px; font-variant-numeric: tabular-nums; overflow: visible; }
@media (max-width: 720px) { .plot { width: 860px; font-size: 14px; } }
.plot text { fill: var(--ink2); paint-order: stroke; stroke: var(--panel); stroke-width: 3px; stroke-linejoin: round; } .plot .middle { text-anchor: middle; } .plot .end { text-anchor: end; }
.plot .strong { fill: var(--ink); font-weight: 600; } .plot .amount { fill: var(--ink); }
.plot .grid { stroke: var(--line); stroke-width: 1; } .plot .join { stroke: var(--ink3); stroke-width: 1; }
.plot .line { fill: none; stroke: var(--accent); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.plot .each { fill: none; stroke: var(--accent); stroke-width: 1; stroke-opacity: .3; stroke-linejoin: round; }
.plot .evaluation { fill: var(--panel); stroke: var(--exposed); stroke-width: 2; }
.plot .limit { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 5 3; }
.plot .end-predicted { stroke: var(--ink3); stroke-width: 1.5; stroke-dasharray: 5 3; } .plot .end-measured { stroke: var(--ink); stroke-width: 1.5; }
.mark-failure { stroke: var(--wait); stroke-width: 2; } .mark-change { stroke: var(--optimizer); stroke-width: 2; stroke-dasharray: 3 2; }
.mark-checkpoint { stroke: var(--hidden); stroke-width: 2; }
.m-failure { background: var(--wait); } .m-change { background: var(--optimizer); } .m-checkpoint { background: var(--hidden); }
.m-line { background: var(--accent); } .m-evaluation { background: var(--exposed); border-radius: 6px; }
.c-forward { fill: var(--forward); } .c-backward { fill: var(--backward); } .c-weight { fill: var(--weight); } .c-hidden { fill: var(--hidden); }
.c-exposed { fill: var(--exposed); } .c-optimizer { fill: var(--optimizer); } .c-tensor { fill: var(--tensor); } .c-boundary { fill: var(--boundary); }
.c-data { fill: var(--data); } .c-copy { fill: var(--copy); } .c-wait { fill: var(--wait); fill-opacity: .38; }
.c-stall { fill: var(--stall); fill-opacity: .3; } .c-copywait { fill: var(--copywait); fill-opacity: .4; }
.c-weights { fill: var(--weights); } .c-gradients { fill: var(--gradients); } .c-states { fill: var(--states); } .c-stored { fill: var(--stored); }
.c-recomputed { fill: var(--recomputed); } .c-agradients { fill: var(--agradients); } .c-workspace { fill: var(--workspace); }
.c-packing { fill: var(--packing); } .c-total { fill: var(--ink3); }
.swatch.k-wait { background: var(--wait); opacity: .5; } .swatch.k-stall { background: var(--stall); opacity: .45; } .swatch.k-copywait { background: var(--copywait); opacity: .5; }
.columns.inner.compared { grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); } .compared td:last-child { white-space: normal; min-width: 120px; }
@media (max-width: 1400px) { .columns.inner.compared { grid-template-columns: minmax(0, 1fr); } }
figure + figure { margin-top: 18px; }
.reasons td:last-child { white-space: normal; min-width: 320px; }
h1 { font-size: 22px; font-weight: 660; letter-spacing: -.01em; }
)css";
}

}  // namespace lynx

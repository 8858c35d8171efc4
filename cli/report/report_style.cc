// See report_style.h.
#include "cli/report/report_style.h"

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
  <div class="title"><h1>{{name}}</h1><p>{{subtitle}}</p></div>
  <ul class="chips" aria-label="Job">{{chips}}</ul>
</header>
<main>
{{main}}<footer>{{footer}}</footer>
</main>
</body>
</html>
)html";
}

// Kinds of spans and of memory have the colours of plan pages: c- fills a shape as k- fills a box there.
std::string_view ReportStyle() {
  return R"css(
.plot { display: block; width: 100%; height: auto; font-size: 12px; font-variant-numeric: tabular-nums; overflow: visible; }
.plot text { fill: var(--ink2); } .plot .middle { text-anchor: middle; } .plot .end { text-anchor: end; }
.plot .strong { fill: var(--ink); font-weight: 600; } .plot .amount { fill: var(--ink); }
.plot .grid { stroke: var(--line); stroke-width: 1; } .plot .join { stroke: var(--ink3); stroke-width: 1; }
.plot .line { fill: none; stroke: var(--accent); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
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
figure + figure { margin-top: 18px; }
.reasons td:last-child { white-space: normal; min-width: 320px; }
h1 { font-size: 22px; font-weight: 660; letter-spacing: -.01em; }
)css";
}

}  // namespace lynx

# Written by kvcanary-gen from the spec; edit that instead.
"""The style sheet of a report: light and dark, wide and narrow."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfbfa; --card: #ffffff; --ink: #1f2430; --quiet: #667085; --rule: #e3e5ea; --track: #f0f1f4;
  --accent: #b42318; --heat: #c2410c; --code: #f2f3f6;
  --c0: #d1495b; --c1: #2f6fbb; --c2: #d69e00; --c3: #2a9d6f; --c4: #8a5cc2; --c5: #e07b39; --c6: #1f9eb5;
  --c7: #c65a9d; --c8: #7d8f29; --c9: #9a6b4f; --cx: #98a1b0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171d; --card: #1c2028; --ink: #e6e8ec; --quiet: #98a1b0; --rule: #303642; --track: #262b35;
    --accent: #ff8a75; --heat: #fb8b4b; --code: #262b35;
    --c0: #ef6f80; --c1: #6aa5ea; --c2: #e8bd45; --c3: #4dc493; --c4: #b48ae6; --c5: #f29b63; --c6: #4fc3d8;
    --c7: #e488c1; --c8: #b0c24f; --c9: #c99a7d; --cx: #737d8d;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 20px 60px; max-width: 1080px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { margin: 0; font-size: 24px; line-height: 1.25; }
h2 { margin: 36px 0 10px; font-size: 18px; }
h3 { margin: 16px 0 4px; font-size: 14px; overflow-wrap: anywhere; }
small, .quiet, .note { color: var(--quiet); }
h3 small { font-weight: 400; margin-left: 6px; }
header p { margin: 4px 0 0; color: var(--quiet); overflow-wrap: anywhere; }
p.quiet { margin: 2px 0 0; font-size: 13px; }
.note { margin: 8px 0 0; font-size: 13px; }
code { padding: 1px 4px; border-radius: 4px; background: var(--code); overflow-wrap: anywhere;
  font: 12.5px/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
code.short { white-space: nowrap; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 20px 0 0;
  padding: 0; list-style: none; }
.cards li { padding: 10px 14px; border: 1px solid var(--rule); border-radius: 10px; background: var(--card); }
.cards b { display: block; font-size: 20px; line-height: 1.35; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.cards b.long { font-size: 16px; line-height: 27px; }
.cards span { color: var(--quiet); font-size: 13px; }
.warning { margin: 16px 0 0; padding: 10px 14px; border-left: 4px solid var(--accent); background: var(--card); }
.warning ul { margin: 4px 0 0; padding-left: 18px; }
ol.advice { margin: 0; padding: 0; list-style: none; display: grid; gap: 10px; }
ol.advice li { padding: 10px 14px; border: 1px solid var(--rule); border-left: 4px solid var(--accent);
  border-radius: 6px; background: var(--card); overflow-wrap: anywhere; }
ol.advice p { margin: 2px 0 0; }
.chart, .scroll { overflow-x: auto; border: 1px solid var(--rule); border-radius: 10px; background: var(--card); }
.chart { padding: 8px 4px 4px; }
svg { display: block; width: 100%; min-width: 860px; height: auto; }
text { fill: var(--quiet); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); stroke-width: 1; }
rect.track { fill: var(--track); }
rect.h1, rect.h2, rect.h3, rect.h4, rect.h5 { fill: var(--heat); }
.h1 { opacity: .25; } .h2 { opacity: .45; } .h3 { opacity: .65; } .h4 { opacity: .82; } .h5 { opacity: 1; }
.c0 { fill: var(--c0); background: var(--c0); } .c1 { fill: var(--c1); background: var(--c1); }
.c2 { fill: var(--c2); background: var(--c2); } .c3 { fill: var(--c3); background: var(--c3); }
.c4 { fill: var(--c4); background: var(--c4); } .c5 { fill: var(--c5); background: var(--c5); }
.c6 { fill: var(--c6); background: var(--c6); } .c7 { fill: var(--c7); background: var(--c7); }
.c8 { fill: var(--c8); background: var(--c8); } .c9 { fill: var(--c9); background: var(--c9); }
.cx { fill: var(--cx); background: var(--cx); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 8px 0 0; padding: 0; list-style: none;
  font-size: 13px; color: var(--quiet); }
.legend i, .badge i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; border-radius: 3px; }
.legend li { overflow-wrap: anywhere; }
.legend b { color: var(--ink); font-weight: 600; }
.legend i.h1, .legend i.h2, .legend i.h3, .legend i.h4, .legend i.h5 { background: var(--heat); }
table { width: 100%; border-collapse: collapse; font-size: 13.5px; }
th, td { padding: 6px 12px; text-align: left; vertical-align: top; border-top: 1px solid var(--rule); }
tr:first-child > th { border-top: 0; color: var(--quiet); font-weight: 500; white-space: nowrap; }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
td.prose { min-width: 300px; }
td.labels { min-width: 460px; }
td.heat { background: color-mix(in srgb, var(--heat) var(--share), transparent); }
td.share { min-width: 100px; font-variant-numeric: tabular-nums; }
td.share i { display: block; height: 4px; min-width: 2px; margin-top: 3px; border-radius: 2px;
  background: var(--heat); }
.badge { display: inline-block; margin: 1px 6px 1px 0; padding: 0 8px 0 6px; border: 1px solid var(--rule);
  border-radius: 99px; font-size: 12px; line-height: 20px; white-space: nowrap; }
.badge i { width: 8px; height: 8px; border-radius: 50%; margin-right: 5px; }
details { margin: 8px 0 0; border: 1px solid var(--rule); border-radius: 10px; background: var(--card); }
summary { padding: 8px 14px; cursor: pointer; }
summary > span { margin-left: 8px; }
details > dl, details > ul, details > .scroll { margin: 0 14px 12px; }
details > .scroll { width: fit-content; max-width: calc(100% - 28px); }
details > ul { padding-left: 18px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
table.values td { font-variant-numeric: tabular-nums; }
table.values td + td { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12.5px; }
tr.differs td + td { color: var(--accent); }
footer { margin-top: 40px; color: var(--quiet); font-size: 13px; }
@media (max-width: 560px) {
  body { padding: 16px 12px 40px; }
  .cards { grid-template-columns: repeat(2, 1fr); gap: 8px; }
  th, td { padding: 6px 8px; }
}
@media print { .chart, .scroll { overflow: visible; } }
"""

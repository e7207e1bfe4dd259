"""The report's frame: one page, its style inside, nothing loaded from elsewhere."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>convx: main job</title>
<style>
body {{
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  color: #1f2937; background: #f3f4f6; margin: 0;
}}
main {{ max-width: 1240px; margin: 0 auto; padding: 28px 20px 60px; }}
header {{ display: flex; gap: 24px; align-items: center; margin-bottom: 18px; }}
header img {{ height: 150px; border-radius: 10px; }}
h1 {{ margin: 0 0 6px; font-size: 27px; }}
h2 {{ margin: 0 0 12px; font-size: 20px; }}
h3 {{ margin: 18px 0 6px; font-size: 15px; }}
p {{ margin: 6px 0; max-width: 78ch; }}
section {{
  background: #fff; border: 1px solid #e5e7eb; border-radius: 12px;
  padding: 20px 22px; margin: 18px 0;
}}
section img {{ max-width: 100%; display: block; margin: 14px 0; }}
.cards {{ display: flex; flex-wrap: wrap; gap: 14px; margin: 12px 0; }}
.card {{
  background: #f9fafb; border: 1px solid #e5e7eb; border-radius: 10px;
  padding: 10px 16px; min-width: 150px;
}}
.card b {{ display: block; font-size: 21px; }}
.card span {{ color: #6b7280; font-size: 13px; }}
.good b {{ color: #15803d; }}
.bad b {{ color: #b91c1c; }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); gap: 14px; }}
figure {{ margin: 0; }}
figure img {{ width: 100%; margin: 0; border-radius: 8px; }}
figcaption {{ color: #6b7280; font-size: 13px; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
th {{ text-align: left; border-bottom: 2px solid #d1d5db; padding: 5px 9px; white-space: nowrap; }}
td {{ border-bottom: 1px solid #eef0f3; padding: 4px 9px; vertical-align: top; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
table.layers {{ font-size: 12px; }}
table.layers th, table.layers td {{ padding: 3px 7px; }}
table.layers td {{ white-space: nowrap; }}
table.layers code {{ font-size: 11.5px; }}
.why {{
  display: block; color: #6b7280; font-size: 11px;
  white-space: normal; min-width: 24ch; max-width: 48ch;
}}
tr.left td {{ color: #8a919c; }}
code {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12.5px; }}
</style>
</head>
<body>
<main>
<header>
<img alt="the photo" src="{photo}">
<div><h1>convx on real networks and a real photo</h1><p>{introduction}</p></div>
</header>
{sections}
</main>
</body>
</html>
"""

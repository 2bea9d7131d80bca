"""Plots as SVG, written by hand: nothing but rectangles, lines and text, with colours for light and dark pages."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

Scale = Callable[[float], float]  # a value -> its place in pixels

WIDTH = 760
LEFT = 190  # room for the systems' names
RIGHT = 70  # and for the figure at the end of a bar
ROW = 20
TOP = 44
PLOT_HEIGHT = 320
COLOURS = ("#d1495b", "#edae49", "#00798c", "#8d5a97", "#5b8e7d", "#b0713b", "#6c757d", "#9aa12e", "#4f6d9a", "#c05780")
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 14px; font-weight: 600; }
.faint { fill: #57606a; font-size: 11px; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.ours { fill: #2da44e; stroke: #2da44e; }
.theirs { fill: #8c959f; }
.ours-name { font-weight: 700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .faint { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .theirs { fill: #656c76; }
}
</style>"""


def bar_plot(*, title: str, unit: str, bars: Sequence[tuple[str, str, float]], ours: str) -> str:
    """A bar for each (system, case, value), shortest first within a case; the axis is logarithmic."""
    cases = list(dict.fromkeys(case for _, case, _ in bars))
    low, high = _decades([value for _, _, value in bars])
    span = WIDTH - LEFT - RIGHT

    def place(value: float) -> float:
        return LEFT + span * (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))

    height = TOP + sum(ROW * (1 + sum(case == of for _, of, _ in bars)) + 8 for case in cases) + 24
    lines = [*_grid(low, high, place=place, top=TOP - 6, bottom=height - 24)]
    y = TOP
    for case in cases:
        lines.append(f'<text x="{LEFT}" y="{y + 13}" class="faint">{escape(case)}</text>')
        y += ROW
        for system, _, value in sorted((bar for bar in bars if bar[1] == case), key=lambda bar: (bar[2], bar[0])):
            mark = "ours" if system == ours else "theirs"
            name = ' class="ours-name"' if system == ours else ""
            width = max(place(value) - LEFT, 1.0)
            lines.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end"{name}>{escape(system)}</text>')
            lines.append(f'<rect x="{LEFT}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}" rx="2" class="{mark}"/>')
            lines.append(f'<text x="{LEFT + width + 5:.1f}" y="{y + 13}" class="faint">{_short(value)}</text>')
            y += ROW
        y += 8
    return _page(title, unit=f"{unit}, logarithmic", height=height, lines=lines)


def line_plot(
    *, title: str, unit: str, x_label: str, points: Mapping[str, Sequence[tuple[float, float]]], ours: str
) -> str:
    """A line for each system over x, both axes logarithmic, its name at the end of it."""
    left, right = 60, WIDTH - 170
    top, bottom = TOP, TOP + PLOT_HEIGHT
    low_x, high_x = _ends([x for line in points.values() for x, _ in line])
    low_y, high_y = _decades([y for line in points.values() for _, y in line])

    def across(x: float) -> float:
        return left + (right - left) * math.log10(x / low_x) / math.log10(high_x / low_x)

    def down(y: float) -> float:
        return bottom - (bottom - top) * math.log10(y / low_y) / math.log10(high_y / low_y)

    lines: list[str] = []
    for decade in _powers(low_y, high_y):
        y = down(decade)
        lines.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" class="grid"/>')
        lines.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" class="faint">{_short(decade)}</text>')
    for x in sorted({x for line in points.values() for x, _ in line}):
        lines.append(f'<line x1="{across(x):.1f}" y1="{top}" x2="{across(x):.1f}" y2="{bottom}" class="grid"/>')
        lines.append(
            f'<text x="{across(x):.1f}" y="{bottom + 16}" text-anchor="middle" class="faint">{_short(x)}</text>'
        )
    lines.append(
        f'<text x="{(left + right) / 2:.1f}" y="{bottom + 34}" text-anchor="middle" class="faint">{escape(x_label)}</text>'
    )
    lines += _curves(points, across=across, down=down, ours=ours)
    return _page(title, unit=f"{unit}, logarithmic", height=bottom + 46, lines=lines)


def _curves(
    points: Mapping[str, Sequence[tuple[float, float]]], *, across: Scale, down: Scale, ours: str
) -> Iterator[str]:
    labels = _spread_out({system: down(max(line)[1]) for system, line in points.items()})
    for number, (system, line) in enumerate(points.items()):
        colour = "#2da44e" if system == ours else COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in sorted(line))
        width = 3 if system == ours else 1.6
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        for x, y in sorted(line):
            yield f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="{width}" fill="{colour}"/>'
        end_x, end_y = max(line)
        start = across(end_x)
        at = labels[system]
        yield (
            f'<line x1="{start + 3:.1f}" y1="{down(end_y):.1f}" x2="{WIDTH - 158}" y2="{at:.1f}" '
            f'stroke="{colour}" stroke-width="0.7" stroke-dasharray="2 3"/>'
        )
        name = ' class="ours-name"' if system == ours else ""
        yield f'<text x="{WIDTH - 154}" y="{at + 4:.1f}"{name} style="fill:{colour}">{escape(system)}</text>'


def _spread_out(wanted: Mapping[str, float]) -> dict[str, float]:
    """The labels' heights, moved down (then up) until none covers another."""
    gap = 15
    placed: dict[str, float] = {}
    last = TOP - gap
    for system, y in sorted(wanted.items(), key=lambda item: (item[1], item[0])):
        last = placed[system] = max(y, last + gap)
    over = max(0.0, last - (TOP + PLOT_HEIGHT))
    floor = TOP + PLOT_HEIGHT + gap
    for system in reversed(placed):
        floor = placed[system] = min(placed[system], floor - gap) if over else placed[system]
    return placed


def _grid(low: float, high: float, *, place: Scale, top: float, bottom: float) -> Iterator[str]:
    for decade in _powers(low, high):
        x = place(decade)
        yield f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" class="grid"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" class="faint">{_short(decade)}</text>'


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around the values."""
    low = 10.0 ** math.floor(math.log10(min(values)))
    high = 10.0 ** math.ceil(math.log10(max(values)))
    return low, high if high > low else low * 10


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low, low * 10)


def _powers(low: float, high: float) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    return [10.0**power for power in range(first, last + 1)]


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 10_000:
        return f"{value / 1_000:.3g} k"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _page(title: str, *, unit: str, height: float, lines: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">'
    )
    name = f'<text x="12" y="20" class="title">{escape(title)}</text>'
    scale = f'<text x="{WIDTH - 12}" y="20" text-anchor="end" class="faint">{escape(unit)}</text>'
    return "\n".join([head, STYLE, name, scale, *lines, "</svg>"]) + "\n"

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
LABEL_STEP, LABEL_HEIGHT, LETTER = 7, 13, 6.6
LABEL_ROOM = 36  # of a figure below an axis
OURS_COLOUR = "#2da44e"
COLOURS = {  # a system has its colour in every plot
    "turnwise, journal": "#7cb342",
    "turnwise, uvloop": "#1f883d",
    "turnwise, TLS": "#7cb342",
    "turnwise, uvloop, TLS": "#a3b94a",
    "floor": "#8c959f",
    "floor, uvloop": "#768390",
    "openai": "#0a93a8",
    "openai .stream()": "#4bb8c6",
    "anthropic": "#c0673d",
    "anthropic .stream()": "#d9935f",
    "google-genai": "#4f6d9a",
    "pydantic-ai": "#d1495b",
    "openai-agents": "#8d5a97",
    "langchain": "#b8860b",
    "langchain, summed": "#b8860b",
    "litellm": "#5b7fd6",
    "AI SDK (node)": "#c05790",
    "AI SDK, messages": "#d98ab5",
}
OTHER_COLOURS = ("#9aa12e", "#b0713b", "#6c8ebf", "#5b8e7d")
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 14px; font-weight: 600; }
.faint { fill: #57606a; font-size: 11px; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.label { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
.ours { fill: #2da44e; }
.theirs { fill: #8c959f; }
.ours-name { font-weight: 700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .faint { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .theirs { fill: #656c76; }
  .label { stroke: #0d1117; }
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
            mark = "ours" if system.startswith(ours) else "theirs"
            name = ' class="ours-name"' if system.startswith(ours) else ""
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
    free = left - LABEL_ROOM
    for x in sorted({x for line in points.values() for x, _ in line}):
        at = across(x)
        lines.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}" class="grid"/>')
        if at >= free + LABEL_ROOM and (x == high_x or right - at >= LABEL_ROOM):
            free = at
            lines.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle" class="faint">{_short(x)}</text>')
    lines.append(
        f'<text x="{(left + right) / 2:.1f}" y="{bottom + 34}" text-anchor="middle" class="faint">{escape(x_label)}</text>'
    )
    lines += _curves(points, across=across, down=down, ours=ours)
    return _page(title, unit=f"{unit}, logarithmic", height=bottom + 46, lines=lines)


def _curves(
    points: Mapping[str, Sequence[tuple[float, float]]], *, across: Scale, down: Scale, ours: str
) -> Iterator[str]:
    for number, (system, line) in enumerate(points.items()):
        colour = _colour(system, number=number, ours=ours)
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in sorted(line))
        width = 3 if system == ours else 1.6
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        for x, y in sorted(line):
            yield f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="{width + 0.6}" fill="{colour}"/>'
    ends = {system: (across(max(line)[0]), down(max(line)[1])) for system, line in points.items()}
    labels = _spread_out(ends)
    for number, system in enumerate(points):
        x, y = labels[system]
        name = " ours-name" if system.startswith(ours) else ""
        colour = _colour(system, number=number, ours=ours)
        yield f'<text x="{x:.1f}" y="{y:.1f}" class="label{name}" style="fill:{colour}">{escape(system)}</text>'


def _colour(system: str, *, number: int, ours: str) -> str:
    return OURS_COLOUR if system == ours else COLOURS.get(system, OTHER_COLOURS[number % len(OTHER_COLOURS)])


Places = dict[str, tuple[float, float]]


def _spread_out(ends: Mapping[str, tuple[float, float]]) -> Places:
    """A place for each name beside its line's end; names at one x keep the order of their lines."""
    placed: Places = {}
    for column in sorted({x for x, _ in ends.values()}, reverse=True):
        group = sorted(((y, system) for system, (x, y) in ends.items() if x == column))
        last = -math.inf
        spread: list[tuple[float, str]] = []
        for y, system in group:
            last = max(y + 4, last + LABEL_HEIGHT)
            spread.append((last, system))
        excess = sum(at - (y + 4) for (at, _), (y, _) in zip(spread, group, strict=True)) / len(group)
        # Rather above the lines than below, where dearer ones seldom are.
        shifts = sorted(range(-30, 31), key=lambda step: (abs(step) + 3 * (step > 0), step))
        trials = [{name: (column + 7, at - excess + LABEL_STEP * step) for at, name in spread} for step in shifts]
        placed |= next((trial for trial in trials if not _collide(trial, placed)), trials[0])
    return placed


def _collide(some: Places, others: Places) -> bool:
    return any(
        abs(y - other_y) < LABEL_HEIGHT and x < other_x + LETTER * len(other) and other_x < x + LETTER * len(name)
        for name, (x, y) in some.items()
        for other, (other_x, other_y) in others.items()
    )


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

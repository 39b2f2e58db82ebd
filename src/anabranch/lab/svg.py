"""Charts as SVG text: axes, lines, bars, marks, and a legend. Enough for what the lab draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 62, 50
LETTER = 7  # about as wide as one is
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#7d5ba6", "#5c6770")


@dataclass
class Chart:
    """One set of axes. Add to it, then `text()`."""

    title: str
    x: str
    y: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT  # the margin for what stands beside the axis
    _parts: list[str] = field(default_factory=list)
    _legend: dict[str, str] = field(default_factory=dict)

    def _x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / ((high - low) or 1) * (self.width - self.left - RIGHT)

    def _y(self, value: float) -> float:
        low, high = self.y_range
        return self.height - BOTTOM - (value - low) / ((high - low) or 1) * (self.height - TOP - BOTTOM)

    def colour(self, name: str) -> str:
        return self._legend.setdefault(name, COLOURS[len(self._legend) % len(COLOURS)])

    def line(self, name: str, points: Sequence[tuple[float, float]]) -> None:
        where = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in points)
        colour = self.colour(name)
        self._parts.append(f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="2"/>')
        self.marks(name, points, 3)

    def marks(self, name: str, points: Sequence[tuple[float, float]], radius: float = 1.6) -> None:
        colour = self.colour(name)
        self._parts += [
            f'<circle cx="{self._x(x):.1f}" cy="{self._y(y):.1f}" r="{radius}" fill="{colour}"/>' for x, y in points
        ]

    def bar(self, name: str, left: float, right: float, bottom: float, top: float) -> None:
        x, y = self._x(left), self._y(top)
        size = f'width="{max(self._x(right) - x, 0.5):.1f}" height="{max(self._y(bottom) - y, 0.5):.1f}"'
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{self.colour(name)}"/>')

    def rule(self, y: float, said: str) -> None:
        """A horizontal line, such as a bound."""
        at = self._y(y)
        ends = f'x1="{self.left}" x2="{self.width - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"'
        self._parts.append(f'<line {ends} stroke="#888" stroke-dasharray="5 4"/>')
        self._parts.append(_text(self.width - RIGHT, at - 4, said, "end"))

    def label(self, x: float, y: float, said: str, anchor: str = "end") -> None:
        self._parts.append(_text(self._x(x) - 6, self._y(y) + 4, said, anchor))

    def text(self, x_ticks: Mapping[float, str] | None = None, y_ticks: Mapping[float, str] | None = None) -> str:
        """The whole chart."""
        base, right = self.height - BOTTOM, self.width - RIGHT
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{self.width}" height="{self.height}" fill="white"/>',
            _text(self.width / 2, 18, self.title, "middle", "bold"),
            f'<path d="M{self.left} {TOP} V{base} H{right}" fill="none" stroke="#333"/>',
            _text((self.left + right) / 2, self.height - 12, self.x, "middle"),
            f'<g transform="translate(16 {(TOP + base) / 2:.0f}) rotate(-90)">{_text(0, 0, self.y, "middle")}</g>',
        ]
        for value, said in (x_ticks or ticks(*self.x_range)).items():
            out.append(_text(self._x(value), base + 16, said, "middle"))
        for value, said in (ticks(*self.y_range) if y_ticks is None else y_ticks).items():
            out.append(_text(self.left - 6, self._y(value) + 4, said, "end"))
        place, row = self.left, 28
        for name, colour in self._legend.items():
            wide = 30 + LETTER * len(name)
            if place + wide > right:
                place, row = self.left, row + 15
            out.append(f'<rect x="{place}" y="{row}" width="10" height="10" fill="{colour}"/>')
            out.append(_text(place + 14, row + 9, name, "start"))
            place += wide
        return "\n".join([*out, *self._parts, "</svg>"]) + "\n"


def stacked(*charts: str) -> str:
    """Charts of the usual size, one below the other."""
    inner = [chart.replace("<svg ", f'<svg y="{HEIGHT * n}" ', 1) for n, chart in enumerate(charts)]
    size = f'width="{WIDTH}" height="{HEIGHT * len(charts)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{"".join(inner)}</svg>\n'


def _text(x: float, y: float, said: str, anchor: str, weight: str = "normal") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f"<text {place}>{escape(said)}</text>"


def ticks(low: float, high: float) -> dict[float, str]:
    """Round values across a range.

    >>> list(ticks(0, 10).values())
    ['0', '2', '4', '6', '8', '10']
    """
    span = (high - low) or 1
    step = 10 ** len(str(int(span))) / 100
    for factor in (1, 2, 5, 10, 20, 50, 100):
        if span / (step * factor) <= 6:
            step *= factor
            break
    first = -(-low // step) * step
    values = [first + n * step for n in range(int((high - first) / step + 1.001))]
    return {value: f"{value:,g}" for value in values}

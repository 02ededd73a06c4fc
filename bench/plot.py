# SPDX-License-Identifier: BSD-2-Clause
"""plot.py - series over the size of a message, as SVG.

Both axes are logarithmic: a factor is the same distance everywhere. Verbena's series are coloured and
thick, its peers' grey and dashed. A bar through a point spans the middle half of the rounds.
"""
import math
import statistics
from xml.sax.saxutils import escape

from figures import middle_half, size_text

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 72, 214, 56, 58  # margins; the names of the series stand in the right one
OURS = {"write": "#0b62a4", "read": "#d1531b", "send": "#2f8a4c"}
PEERS = ("#3d3d3d", "#7d7d7d", "#a38a5f", "#8a6aa8")
DASHES = ("6 4", "2 3", "9 3 2 3", "4 2")
LABEL_DISTANCE = 17
MOST_WITH_DIGITS = 5000  # the factor between the ends of an axis that has marks at 2 and 5, too


class Scale:
    """From numbers to places, logarithmically."""

    def __init__(self, low, high, begin, end):
        self.low, self.begin, self.end = math.log(low), begin, end
        self.width = math.log(high) - self.low or 1.0

    def __call__(self, number):
        return self.begin + (math.log(number) - self.low) / self.width * (self.end - self.begin)


def ticks(low, high):
    """1, 2 and 5 times powers of ten that span low to high; the powers alone where that would be many."""
    digits = (1, 2, 5) if high / low < MOST_WITH_DIGITS else (1,)
    every = [float(f"{digit}e{power}") for power in range(-9, 12) for digit in digits]
    below = max(tick for tick in every if tick <= low * 1.0001)
    above = min(tick for tick in every if tick >= high / 1.0001)
    return [tick for tick in every if below <= tick <= above]


def points(keys, values):
    """[(size, median, low, high)] of a series, as far as it was measured."""
    return [(size, statistics.median(values[key]), *middle_half(values[key]))
            for size, key in sorted(keys.items()) if values.get(key) and min(values[key]) > 0]


def text(x, y, words, anchor="start", size=12, colour="#222", extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{extra}>'
            f"{escape(words)}</text>")


def line(x1, y1, x2, y2, colour, width=1.0, dash=""):
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"{style}/>')


def spread_labels(wanted):
    """Places for labels, near where they are wanted, none over another: [(place, ...)] of sorted places."""
    placed = []
    for place in wanted:
        placed.append(max(place, placed[-1] + LABEL_DISTANCE) if placed else place)
    over = placed[-1] - (HEIGHT - BOTTOM) if placed else 0
    for i in range(len(placed) - 1, -1, -1):  # what runs out below pushes the others up
        if over <= 0:
            break
        placed[i] -= over
        over = placed[i - 1] + LABEL_DISTANCE - placed[i] if i else 0
    return placed


def styles(series):
    """(label, points, colour, width, dash) of each; Verbena's are those that say so."""
    peers, styled = iter(zip(PEERS, DASHES)), []
    for label, where in series:
        if label.startswith("Verbena"):
            styled.append((label, where, next(OURS[word] for word in OURS if word in label), 2.6, ""))
        else:
            colour, dash = next(peers)
            styled.append((label, where, colour, 1.5, dash))
    return styled


def draw(plot, values, note=""):
    """The SVG document of a plot, or None when nothing of it was measured."""
    series = [(label, points(keys, values)) for label, keys in plot.curves.items()]
    series = [(label, where) for label, where in series if where]
    if not series:
        return None
    sizes = sorted({point[0] for _, where in series for point in where})
    series += [(label, [(size, statistics.median(values[key]), *middle_half(values[key]))
                        for size in (sizes[0], sizes[-1])])
               for label, key in plot.flat.items() if values.get(key)]
    marks = ticks(min(p[1] for _, where in series for p in where), max(p[1] for _, where in series for p in where))
    x = Scale(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT)
    y = Scale(marks[0], marks[-1], HEIGHT - BOTTOM, TOP)
    body = [text(LEFT, 26, plot.title, size=17, extra=' font-weight="bold"')]
    if note:
        body.append(text(LEFT, 44, note, size=11, colour="#777"))
    body += axes(plot, sizes, marks, x, y)
    styled = styles(series)
    for label, where, colour, width, dash in reversed(styled):  # Verbena's above the others
        body += curve(where, x, y, colour, width, dash, flat=label in plot.flat)
    body += labels(styled, y)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")


def axes(plot, sizes, marks, x, y):
    body = []
    for mark in marks:
        body.append(line(LEFT, y(mark), WIDTH - RIGHT, y(mark), "#e2e2e2"))
        body.append(text(LEFT - 8, y(mark) + 4, f"{mark:.9f}".rstrip("0").rstrip("."), "end"))
    for size in sizes:
        body.append(line(x(size), TOP, x(size), HEIGHT - BOTTOM, "#f0f0f0"))
        body.append(text(x(size), HEIGHT - BOTTOM + 19, size_text(size), "middle"))
    body.append(line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#555"))
    body.append(line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#555"))
    body.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "size of a message", "middle", 13))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    unit = "microseconds" if plot.unit == "us" else plot.unit
    better = "less is better" if plot.unit == "us" else "more is better"
    body.append(text(20, middle, f"{unit} ({better})", "middle", 13, extra=f' transform="rotate(-90 20 {middle:.1f})"'))
    return body


def curve(where, x, y, colour, width, dash, flat):
    body = []
    path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value, _, _ in where)
    style = f' stroke-dasharray="{dash}"' if dash else ""
    body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{style}/>')
    for size, value, low, high in () if flat else where:
        body.append(line(x(size), y(low), x(size), y(high), colour, 1.0))
        body.append(f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="{width + 0.6:.1f}" fill="{colour}"/>')
    return body


def labels(styled, y):
    """The legend: each series' name beside its end, with a piece of its line."""
    body, right = [], WIDTH - RIGHT
    ordered = sorted(styled, key=lambda series: y(series[1][-1][1]))
    for place, (label, _, colour, width, dash) in zip(spread_labels([y(s[1][-1][1]) for s in ordered]), ordered):
        body.append(line(right + 12, place, right + 38, place, colour, width, dash))
        body.append(text(right + 44, place + 4, label, colour=colour))
    return body

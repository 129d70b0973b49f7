//! Surroundings of the values: title, legend, axes, grid.

use crate::axis::{Axis, Resolved};
use crate::canvas::{Anchor, Canvas, TEXT, TITLE};
use crate::measure::{fit, width};

/// Width of all charts.
pub const WIDTH: f64 = 860.0;
/// Height of the plot.
pub const PLOT_HEIGHT: f64 = 320.0;
/// Margin at the edges.
pub const EDGE: f64 = 14.0;
const LINE: f64 = 18.0;

/// A line of the legend.
pub struct Key<'a> {
    pub name: &'a str,
    /// Classes of its symbol: a filled square or a line.
    pub fill: Option<String>,
    pub stroke: Option<(String, &'static str)>,
}

/// Area of the plot.
#[derive(Clone, Copy)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

impl Area {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Pixel of a share of the vertical axis, 0 at the bottom.
    pub fn y(&self, share: f64) -> f64 {
        self.bottom() - share * self.height
    }

    /// Pixel of a share of the horizontal axis.
    pub fn x(&self, share: f64) -> f64 {
        self.left + share * self.width
    }
}

/// Title and legend; returns their lower end.
pub fn head(canvas: &mut Canvas, title: &str, keys: &[Key<'_>]) -> f64 {
    let mut y = EDGE + TITLE;
    canvas.text(
        (EDGE, y),
        Anchor::Start,
        TITLE,
        "w-ink",
        &fit(title, TITLE * 1.1, WIDTH - 2.0 * EDGE),
    );
    if keys.is_empty() {
        return y + 12.0;
    }
    y += LINE + 4.0;
    let mut x = EDGE;
    for key in keys {
        let sign = if key.stroke.is_some() { 32.0 } else { 18.0 };
        let name = fit(key.name, TEXT, WIDTH - 2.0 * EDGE - sign);
        let wide = sign + width(&name, TEXT) + 14.0;
        if x > EDGE && x + wide > WIDTH - EDGE {
            x = EDGE;
            y += LINE;
        }
        if let Some(fill) = &key.fill {
            canvas.rect((x, y - 10.0), (12.0, 12.0), fill, "");
        }
        if let Some((stroke, dash)) = &key.stroke {
            canvas.path(
                [(x, y - 4.0), (x + 26.0, y - 4.0)].into_iter(),
                stroke,
                dash,
            );
        }
        canvas.text((x + sign, y), Anchor::Start, TEXT, "w-ink", &name);
        x += wide;
    }
    y + 14.0
}

/// Width left of the plot for a vertical axis.
pub fn left_of(axis: &Axis, resolved: &Resolved) -> f64 {
    EDGE + if axis.title.is_empty() { 0.0 } else { 20.0 } + resolved.widest(TEXT) + 10.0
}

/// The vertical axis with its grid.
pub fn vertical(canvas: &mut Canvas, area: Area, axis: &Axis, resolved: &Resolved) {
    for (value, text) in &resolved.ticks {
        let y = area.y(resolved.place(*value));
        canvas.line((area.left, y), (area.right(), y), "w-grid");
        canvas.text((area.left - 7.0, y + 4.0), Anchor::End, TEXT, "w-dim", text);
    }
    if !axis.title.is_empty() {
        let middle = (EDGE + 8.0, area.top + area.height / 2.0);
        canvas.turned(
            middle,
            Anchor::Middle,
            TEXT,
            "w-ink",
            -90.0,
            &fit(&axis.title, TEXT, area.height + 40.0),
        );
    }
}

/// Width right of the plot for the names of levels, so that they do not overlap the plot.
pub fn right_of(marks: &[(f64, String)]) -> f64 {
    marks
        .iter()
        .map(|(_, name)| width(name, TEXT) + 6.0)
        .fold(0.0, f64::max)
}

/// Levels across the plot with their names.
pub fn levels(canvas: &mut Canvas, area: Area, marks: &[(f64, String)], resolved: &Resolved) {
    for (value, name) in marks {
        let at = area.y(resolved.place(*value));
        canvas.dashed((area.left, at), (area.right(), at), "w-axis");
        canvas.text(
            (area.right() + 5.0, at + 4.0),
            Anchor::Start,
            TEXT,
            "w-dim",
            name,
        );
    }
}

/// Height below the plot for a horizontal axis.
pub const BELOW: f64 = 24.0 + LINE + EDGE;

/// The horizontal axis with as many of its ticks as fit.
pub fn horizontal(canvas: &mut Canvas, area: Area, axis: &Axis, resolved: &Resolved) {
    canvas.line(
        (area.left, area.bottom()),
        (area.right(), area.bottom()),
        "w-axis",
    );
    let mut free_from = f64::NEG_INFINITY;
    for (value, text) in &resolved.ticks {
        let (x, half) = (area.x(resolved.place(*value)), width(text, TEXT) / 2.0);
        canvas.line((x, area.bottom()), (x, area.bottom() + 5.0), "w-axis");
        // The last one must not be cut at the edge.
        let at = x.min(WIDTH - 4.0 - half);
        if at - half < free_from {
            continue;
        }
        canvas.text(
            (at, area.bottom() + 19.0),
            Anchor::Middle,
            TEXT,
            "w-dim",
            text,
        );
        free_from = at + half + 8.0;
    }
    canvas.text(
        (
            area.left + area.width / 2.0,
            area.bottom() + 24.0 + LINE - 3.0,
        ),
        Anchor::Middle,
        TEXT,
        "w-ink",
        &fit(&axis.title, TEXT, area.width),
    );
}

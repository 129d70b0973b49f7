//! Horizontal bars, one group below the other: for names that are too long to fit below vertical
//! bars.

use crate::axis::{Axis, Resolved, show};
use crate::bars::{Bars, Group};
use crate::canvas::{Anchor, Canvas, TEXT};
use crate::frame::{Area, BELOW, EDGE, WIDTH, horizontal};
use crate::measure::{fit, width};
use crate::theme::SERIES;

const BAR: f64 = 15.0;
const GAP: f64 = 11.0;
/// Maximum width of names.
const NAMES_MOST: f64 = 400.0;
/// Width for the number after the longest bar.
const NUMBER: f64 = 58.0;

/// Draws groups from `top` on and returns their lower end.
pub fn draw(canvas: &mut Canvas, bars: &Bars, axis: &Axis, resolved: &Resolved, top: f64) -> f64 {
    let names: Vec<String> = bars
        .groups
        .iter()
        .map(|group| fit(&group.label, TEXT, NAMES_MOST))
        .collect();
    let left = EDGE
        + names
            .iter()
            .map(|name| width(name, TEXT))
            .fold(0.0, f64::max)
        + 10.0;
    let most = bars
        .groups
        .iter()
        .map(|group| group.values.len())
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let tall = most * BAR + GAP;
    let area = Area {
        left,
        top,
        width: WIDTH - left - EDGE - NUMBER,
        height: tall * bars.groups.len() as f64 + GAP,
    };
    for (value, _) in &resolved.ticks {
        let x = area.x(resolved.place(*value));
        canvas.line((x, area.top), (x, area.bottom()), "w-grid");
    }
    for (value, name) in &bars.marks {
        let x = area.x(resolved.place(*value));
        canvas.dashed((x, area.top), (x, area.bottom()), "w-axis");
        canvas.text(
            (x + 5.0, area.top + 10.0),
            Anchor::Start,
            TEXT - 2.0,
            "w-dim",
            name,
        );
    }
    for ((at, group), name) in bars.groups.iter().enumerate().zip(&names) {
        let y = area.top + GAP + at as f64 * tall;
        canvas.text(
            (area.left - 8.0, y + most * BAR / 2.0 + 4.0),
            Anchor::End,
            TEXT,
            "w-dim",
            name,
        );
        one(canvas, bars, group, area, resolved, y);
    }
    canvas.line((area.left, area.top), (area.left, area.bottom()), "w-axis");
    horizontal(canvas, area, axis, resolved);
    area.bottom() + BELOW
}

fn one(canvas: &mut Canvas, bars: &Bars, group: &Group, area: Area, resolved: &Resolved, y: f64) {
    for (number, value) in group.values.iter().enumerate() {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            continue;
        };
        let (long, top) = (resolved.place(value) * area.width, y + number as f64 * BAR);
        let shown = show(bars.y.unit, value);
        canvas.rect(
            (area.left, top),
            (long.max(0.5), BAR - 2.0),
            &format!("w-s{}", number % SERIES),
            &bars.about_bar(group, number, &shown),
        );
        canvas.text(
            (area.left + long + 4.0, top + BAR - 4.5),
            Anchor::Start,
            TEXT - 2.0,
            "w-dim",
            &shown,
        );
    }
}

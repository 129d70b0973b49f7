//! Heat map: a grid of shades by address and time.

use crate::axis::{Axis, Scale, Unit};
use crate::canvas::{Anchor, Canvas, TEXT};
use crate::frame::{Area, BELOW, EDGE, WIDTH, head, horizontal, left_of, vertical};
use crate::measure::width;
use crate::picture::Picture;
use crate::theme::SHADES;

/// A grid; the first row is the lowest.
#[derive(Clone, PartialEq, Debug)]
pub struct Heat {
    /// Title.
    pub title: String,
    /// Description.
    pub about: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Unit of the cells.
    pub unit: Unit,
    /// Name of the cells' quantity.
    pub what: String,
    /// Number of cells of a row.
    pub columns: usize,
    /// Rows one after the other, from the bottom; 0 is empty.
    pub cells: Vec<f64>,
}

const CELL_HEIGHT_LEAST: f64 = 3.0;

impl Heat {
    /// Minimum and maximum of the nonempty cells.
    fn ends(&self) -> (f64, f64) {
        let filled = || {
            self.cells
                .iter()
                .copied()
                .filter(|value| *value > 0.0 && value.is_finite())
        };
        (
            filled().fold(f64::INFINITY, f64::min),
            filled().fold(0.0, f64::max),
        )
    }

    /// Draws the chart. Cells differ by powers of ten, so their shade follows the logarithm.
    pub fn picture(&self) -> Picture {
        let mut canvas = Canvas::new();
        let top = head(&mut canvas, &self.title, &[]) + 4.0;
        let columns = self.columns.max(1);
        let rows = (self.cells.len() / columns).max(1);
        let y = self.y.resolve(f64::INFINITY, f64::NEG_INFINITY, 8, true);
        let x = self.x.resolve(f64::INFINITY, f64::NEG_INFINITY, 8, true);
        let left = left_of(&self.y, &y);
        let (low, high) = self.ends();
        let scale = Axis {
            title: String::new(),
            unit: self.unit,
            scale: Scale::Log,
            from: None,
            to: None,
        };
        let beside = self.scale_width(&scale, low, high);
        let height = (rows as f64 * CELL_HEIGHT_LEAST).clamp(240.0, 480.0);
        let area = Area {
            left,
            top,
            width: WIDTH - left - beside - EDGE,
            height,
        };
        vertical(&mut canvas, area, &self.y, &y);
        self.shades(&mut canvas, area, columns, rows, (low, high));
        canvas.frame((area.left, area.top), (area.width, area.height));
        horizontal(&mut canvas, area, &self.x, &x);
        if high > 0.0 {
            self.key(&mut canvas, area, &scale, low, high);
        }
        Picture {
            width: WIDTH,
            height: area.bottom() + BELOW,
            title: self.title.clone(),
            about: self.about.clone(),
            body: canvas.finish(),
        }
    }

    fn shades(
        &self,
        canvas: &mut Canvas,
        area: Area,
        columns: usize,
        rows: usize,
        (low, high): (f64, f64),
    ) {
        let span = (high / low).ln().max(1e-9);
        let shade = |value: f64| {
            if value > 0.0 {
                Some((((value / low).ln() / span * SHADES as f64) as usize).min(SHADES - 1))
            } else {
                None
            }
        };
        let (wide, tall) = (area.width / columns as f64, area.height / rows as f64);
        let mut runs: Vec<Vec<(f64, f64, f64)>> = vec![Vec::new(); SHADES];
        for (number, row) in self.cells.chunks(columns).enumerate() {
            let top = area.bottom() - (number + 1) as f64 * tall;
            let mut at = 0;
            while at < row.len() {
                let same = row[at..]
                    .iter()
                    .take_while(|value| shade(**value) == shade(row[at]))
                    .count();
                if let Some(shade) = shade(row[at]) {
                    runs[shade].push((area.left + at as f64 * wide, top, same as f64 * wide));
                }
                at += same;
            }
        }
        for (shade, runs) in runs.iter().enumerate().filter(|(_, runs)| !runs.is_empty()) {
            canvas.runs(runs, tall, &format!("w-h{shade}"));
        }
    }

    fn levels(scale: &Axis, low: f64, high: f64) -> Vec<String> {
        let level = |at: usize| scale.tick(low * (high / low).powf(at as f64 / 4.0));
        (0..=4).map(level).collect()
    }

    fn scale_width(&self, scale: &Axis, low: f64, high: f64) -> f64 {
        if high <= 0.0 {
            return 0.0;
        }
        let levels = Self::levels(scale, low, high)
            .iter()
            .map(|text| width(text, TEXT))
            .fold(0.0, f64::max);
        26.0 + 16.0 + 8.0 + levels.max(30.0)
    }

    /// Legend of the shades.
    fn key(&self, canvas: &mut Canvas, area: Area, scale: &Axis, low: f64, high: f64) {
        let (left, tall) = (area.right() + 26.0, area.height / SHADES as f64);
        for shade in 0..SHADES {
            canvas.rect(
                (left, area.bottom() - (shade + 1) as f64 * tall),
                (14.0, tall + 0.3),
                &format!("w-h{shade}"),
                "",
            );
        }
        for (at, text) in Self::levels(scale, low, high).iter().enumerate() {
            canvas.text(
                (
                    left + 20.0,
                    area.y(at as f64 / 4.0) + if at == 4 { 10.0 } else { 4.0 },
                ),
                Anchor::Start,
                TEXT,
                "w-dim",
                text,
            );
        }
        canvas.turned(
            (left - 7.0, area.top + area.height / 2.0),
            Anchor::Middle,
            TEXT,
            "w-ink",
            -90.0,
            &self.what,
        );
    }
}

//! Lines through points, and points alone.

use crate::axis::Axis;
use crate::canvas::Canvas;
use crate::frame::{
    Area, BELOW, EDGE, Key, PLOT_HEIGHT, WIDTH, head, horizontal, left_of, levels, right_of,
    vertical,
};
use crate::picture::Picture;
use crate::theme::SERIES;

/// Points of one series.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    dots: bool,
}

impl Series {
    /// A line through points; values that are not numbers are left out.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points
            .into_iter()
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect();
        Self {
            name: name.into(),
            points,
            dots: false,
        }
    }

    /// Adds a dot at each point.
    #[must_use]
    pub fn dots(mut self) -> Self {
        self.dots = true;
        self
    }
}

/// Lines over a common axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Lines {
    title: String,
    about: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    marks: Vec<(f64, String)>,
}

const DASHES: [&str; 3] = ["", "8 4", "2 3"];

impl Lines {
    /// An empty chart; `about` describes it.
    pub fn new(title: impl Into<String>, about: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            about: about.into(),
            x,
            y,
            series: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Adds points.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a named level across the chart.
    #[must_use]
    pub fn mark(mut self, value: f64, name: impl Into<String>) -> Self {
        if value.is_finite() {
            self.marks.push((value, name.into()));
        }
        self
    }

    /// Draws the chart.
    pub fn picture(&self) -> Picture {
        let mut canvas = Canvas::new();
        let class = |at: usize| format!("w-l{}", at % SERIES);
        let dash = |at: usize| DASHES[at / SERIES % DASHES.len()];
        let named = self
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| !series.name.is_empty());
        let keys: Vec<Key<'_>> = named
            .map(|(at, series)| Key {
                name: &series.name,
                fill: None,
                stroke: Some((class(at), dash(at))),
            })
            .collect();
        let top = head(&mut canvas, &self.title, &keys);
        let points = || {
            self.series
                .iter()
                .flat_map(|series| series.points.iter().copied())
        };
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            })
        };
        let (least, most) = ends(&mut points().map(|(x, _)| x));
        let x = self.x.resolve(least, most, 8, true);
        let (least, most) = ends(
            &mut points()
                .map(|(_, y)| y)
                .chain(self.marks.iter().map(|(value, _)| *value)),
        );
        let y = self.y.resolve(least, most, 6, false);
        let left = left_of(&self.y, &y);
        let area = Area {
            left,
            top,
            width: WIDTH - left - EDGE - 10.0 - right_of(&self.marks),
            height: PLOT_HEIGHT,
        };
        vertical(&mut canvas, area, &self.y, &y);
        horizontal(&mut canvas, area, &self.x, &x);
        levels(&mut canvas, area, &self.marks, &y);
        for (at, series) in self.series.iter().enumerate() {
            let place = |(px, py): &(f64, f64)| (area.x(x.place(*px)), area.y(y.place(*py)));
            canvas.path(series.points.iter().map(place), &class(at), dash(at));
            if series.dots || series.points.len() == 1 {
                series
                    .points
                    .iter()
                    .for_each(|point| canvas.dot(place(point), &format!("w-s{}", at % SERIES)));
            }
        }
        Picture {
            width: WIDTH,
            height: area.bottom() + BELOW,
            title: self.title.clone(),
            about: self.about.clone(),
            body: canvas.finish(),
        }
    }
}

//! Bars in groups.

use crate::axis::{Axis, Scale};
use crate::canvas::{Anchor, Canvas, TEXT};
use crate::frame::{
    Area, EDGE, Key, PLOT_HEIGHT, WIDTH, head, left_of, levels, right_of, vertical,
};
use crate::measure::{fit, width, wrap};
use crate::picture::Picture;
use crate::sideways;
use crate::theme::SERIES;

/// Adjacent bars, one of each series; a series may have none here.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Label below the bars.
    pub label: String,
    /// Their heights.
    pub values: Vec<Option<f64>>,
}

impl Group {
    /// A group with a bar of every series.
    pub fn new(label: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Self {
            label: label.into(),
            values: values.into_iter().map(Some).collect(),
        }
    }
}

/// Groups of bars on a common axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    title: String,
    about: String,
    below: String,
    pub(crate) y: Axis,
    series: Vec<String>,
    pub(crate) groups: Vec<Group>,
    pub(crate) marks: Vec<(f64, String)>,
}

/// Names up to this width in pixels are thinned out if there are too many, and never make the chart
/// horizontal.
const SHORT: f64 = 60.0;
const LINES_MOST: usize = 3;
const LINE: f64 = 15.0;

impl Bars {
    /// An empty chart. `below` names the groups, `series` the bars of every group; `about`
    /// describes the chart.
    pub fn new(
        title: impl Into<String>,
        about: impl Into<String>,
        below: impl Into<String>,
        y: Axis,
        series: &[&str],
    ) -> Self {
        let series = series.iter().map(|name| (*name).to_owned()).collect();
        Self {
            title: title.into(),
            about: about.into(),
            below: below.into(),
            y,
            series,
            groups: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Adds a group.
    #[must_use]
    pub fn with(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Adds groups.
    #[must_use]
    pub fn with_all(mut self, groups: impl IntoIterator<Item = Group>) -> Self {
        self.groups.extend(groups);
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

    fn values(&self) -> impl Iterator<Item = f64> {
        self.groups
            .iter()
            .flat_map(|group| group.values.iter().flatten().copied())
            .filter(|value| value.is_finite())
    }

    /// Draws the chart.
    pub fn picture(&self) -> Picture {
        let mut canvas = Canvas::new();
        let key = |(at, name): (usize, &String)| (name.clone(), format!("w-s{}", at % SERIES));
        let named: Vec<(String, String)> = self.series.iter().enumerate().map(key).collect();
        let keys: Vec<Key<'_>> = named
            .iter()
            .map(|(name, class)| Key {
                name,
                fill: Some(class.clone()),
                stroke: None,
            })
            .collect();
        let top = head(
            &mut canvas,
            &self.title,
            if keys.len() > 1 { &keys } else { &[] },
        );
        let all = || {
            self.values()
                .chain(self.marks.iter().map(|(value, _)| *value))
        };
        let (least, most) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        // Bars start at zero, unless lengths are logarithmic.
        let y = if self.y.scale == Scale::Log {
            self.y.clone()
        } else {
            self.y.clone().from(self.y.from.unwrap_or(0.0))
        };
        let resolved = y.resolve(least, most, 6, false);
        if self.lies() {
            let height = sideways::draw(&mut canvas, self, &y, &resolved, top);
            return Picture {
                width: WIDTH,
                height,
                title: self.title.clone(),
                about: self.about.clone(),
                body: canvas.finish(),
            };
        }
        let left = left_of(&y, &resolved);
        let area = Area {
            left,
            top: top + 6.0,
            width: WIDTH - left - EDGE - right_of(&self.marks),
            height: PLOT_HEIGHT,
        };
        vertical(&mut canvas, area, &y, &resolved);
        levels(&mut canvas, area, &self.marks, &resolved);
        self.draw(&mut canvas, area, &|value| area.y(resolved.place(value)));
        canvas.line(
            (area.left, area.bottom()),
            (area.right(), area.bottom()),
            "w-axis",
        );
        let mut bottom = area.bottom() + self.labels(&mut canvas, area);
        if !self.below.is_empty() {
            bottom += 18.0;
            canvas.text(
                (area.left + area.width / 2.0, bottom),
                Anchor::Middle,
                TEXT,
                "w-ink",
                &fit(&self.below, TEXT, area.width),
            );
        }
        Picture {
            width: WIDTH,
            height: bottom + EDGE,
            title: self.title.clone(),
            about: self.about.clone(),
            body: canvas.finish(),
        }
    }

    /// Tooltip of a bar.
    pub(crate) fn about_bar(&self, group: &Group, number: usize, shown: &str) -> String {
        let series = self
            .series
            .get(number)
            .filter(|_| self.series.len() > 1)
            .map_or(String::new(), |name| format!(", {name}"));
        format!("{}{series}: {shown}", group.label)
    }

    /// True if names are too long to fit below the bars, even in several lines.
    fn lies(&self) -> bool {
        let slot = (WIDTH - 90.0) / self.groups.len().max(1) as f64;
        let fits = |group: &Group| {
            wrap(&group.label, TEXT, slot - 8.0, LINES_MOST).is_some()
                || width(&group.label, TEXT) < SHORT
        };
        !self.groups.iter().all(fits)
    }

    /// Width of a group including the gap to the next one.
    fn slot(&self, area: Area) -> f64 {
        area.width / self.groups.len().max(1) as f64
    }

    fn draw(&self, canvas: &mut Canvas, area: Area, place: &dyn Fn(f64) -> f64) {
        let slot = self.slot(area);
        let most = self
            .groups
            .iter()
            .map(|group| group.values.len())
            .max()
            .unwrap_or(1)
            .max(1) as f64;
        let bar = ((slot * 0.84) / most).min(64.0);
        let shown = |value: f64| crate::axis::show(self.y.unit, value);
        // Numbers above the bars only if all of them fit.
        let small = TEXT - 2.0;
        let numbers = self
            .values()
            .all(|value| width(&shown(value), small) <= bar + 1.0);
        for (at, group) in self.groups.iter().enumerate() {
            let left = area.left + slot * (at as f64 + 0.5) - bar * most / 2.0;
            for (number, value) in group.values.iter().enumerate() {
                let Some(value) = value.filter(|value| value.is_finite()) else {
                    continue;
                };
                let (x, y) = (left + number as f64 * bar, place(value));
                let about = self.about_bar(group, number, &shown(value));
                canvas.rect(
                    (x + 1.0, y),
                    ((bar - 2.0).max(0.5), area.bottom() - y),
                    &format!("w-s{}", number % SERIES),
                    &about,
                );
                if numbers {
                    canvas.text(
                        (x + bar / 2.0, y - 4.0),
                        Anchor::Middle,
                        small,
                        "w-dim",
                        &shown(value),
                    );
                }
            }
        }
    }

    /// Names below the groups: in several lines if they are too wide, thinned out if that does not
    /// help; returns their height.
    fn labels(&self, canvas: &mut Canvas, area: Area) -> f64 {
        let slot = self.slot(area);
        let middle = |at: usize| area.left + slot * (at as f64 + 0.5);
        let wrapped: Vec<Option<Vec<String>>> = self
            .groups
            .iter()
            .map(|group| wrap(&group.label, TEXT, slot - 8.0, LINES_MOST))
            .collect();
        if let Some(all) = wrapped.into_iter().collect::<Option<Vec<_>>>() {
            for (at, lines) in all.iter().enumerate() {
                for (number, line) in lines.iter().enumerate() {
                    canvas.text(
                        (middle(at), area.bottom() + 18.0 + number as f64 * LINE),
                        Anchor::Middle,
                        TEXT,
                        "w-dim",
                        line,
                    );
                }
            }
            return 20.0
                + LINE
                    * all
                        .iter()
                        .map(|lines| lines.len().max(1) - 1)
                        .max()
                        .unwrap_or(0) as f64;
        }
        // Too many short names are thinned out, not wrapped.
        let names: Vec<&str> = self
            .groups
            .iter()
            .map(|group| group.label.as_str())
            .collect();
        let widest = names
            .iter()
            .map(|name| width(name, TEXT))
            .fold(0.0, f64::max);
        let each = ((widest + 8.0) / slot).ceil().max(1.0) as usize;
        for (at, name) in names.iter().enumerate().filter(|(at, _)| at % each == 0) {
            canvas.text(
                (middle(at), area.bottom() + 18.0),
                Anchor::Middle,
                TEXT,
                "w-dim",
                name,
            );
        }
        20.0
    }
}

//! Writes SVG.

use crate::measure::escape;
use std::fmt::{Display, Write};

/// Size of normal text.
pub const TEXT: f64 = 12.0;
/// Size of titles.
pub const TITLE: f64 = 15.0;

/// Alignment of a text at its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A chart being drawn. Coordinates are pixels from the upper left corner, rounded to tenths.
pub struct Canvas {
    body: String,
}

impl Canvas {
    pub fn new() -> Self {
        Self {
            body: String::new(),
        }
    }

    /// Returns the SVG.
    pub fn finish(self) -> String {
        self.body
    }

    fn put(&mut self, text: impl Display) {
        // Writing to a string never fails.
        _ = writeln!(self.body, "{text}");
    }

    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, size: f64, class: &str, text: &str) {
        self.turned((x, y), anchor, size, class, 0.0, text);
    }

    /// Rotated text, degrees clockwise.
    pub fn turned(
        &mut self,
        (x, y): (f64, f64),
        anchor: Anchor,
        size: f64,
        class: &str,
        degrees: f64,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let turn = if degrees == 0.0 {
            String::new()
        } else {
            format!(" transform=\"rotate({degrees} {x:.1} {y:.1})\"")
        };
        let weight = if size > TEXT {
            " font-weight=\"bold\""
        } else {
            ""
        };
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\"{weight} class=\"{class}\"{anchor}{turn}>{}</text>", escape(text)));
    }

    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A line with gaps.
    pub fn dashed(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.put(format_args!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\" stroke-dasharray=\"5 4\"/>"));
    }

    /// A rectangle; `about` is its tooltip, if any.
    pub fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        class: &str,
        about: &str,
    ) {
        let open = format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\""
        );
        match about {
            "" => self.put(format_args!("{open}/>")),
            about => self.put(format_args!(
                "{open}><title>{}</title></rect>",
                escape(about)
            )),
        }
    }

    pub fn frame(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.put(format_args!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"w-axis\" fill=\"none\"/>"));
    }

    /// A polyline; `dash` is empty for a solid one.
    pub fn path(&mut self, points: impl Iterator<Item = (f64, f64)>, class: &str, dash: &str) {
        let mut data = String::new();
        for (at, (x, y)) in points.enumerate() {
            _ = write!(data, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
        }
        let dash = if dash.is_empty() {
            String::new()
        } else {
            format!(" stroke-dasharray=\"{dash}\"")
        };
        self.put(format_args!("<path d=\"{data}\" class=\"{class}\" fill=\"none\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{dash}/>"));
    }

    /// Many rectangles of one class in one element: (x, y, width) of a common height.
    pub fn runs(&mut self, runs: &[(f64, f64, f64)], height: f64, class: &str) {
        let mut data = String::new();
        for (x, y, width) in runs {
            _ = write!(data, "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z");
        }
        self.put(format_args!(
            "<path d=\"{data}\" class=\"{class}\" shape-rendering=\"crispEdges\"/>"
        ));
    }

    pub fn dot(&mut self, (x, y): (f64, f64), class: &str) {
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\" class=\"{class}\"/>"
        ));
    }
}

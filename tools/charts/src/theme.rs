//! Colours as classes of a style sheet, in a light and a dark form.

use std::fmt::Write;

/// Shades of a heat map.
pub const SHADES: usize = 12;
/// Number of series colours before they repeat.
pub const SERIES: usize = 8;

/// Colours that most people with colour blindness can distinguish (after Okabe and Ito), on white.
const LIGHT_SERIES: [&str; SERIES] = [
    "#0072b2", "#d55e00", "#008f68", "#b3558a", "#b8860b", "#3f9fd0", "#6b6b6b", "#7a4a12",
];
/// Same, brighter, on black.
const DARK_SERIES: [&str; SERIES] = [
    "#58a6ff", "#ff8c42", "#3fc9a0", "#e08bbd", "#e0b040", "#8fd0f5", "#a8a8a8", "#c99060",
];

/// Anchors of a perceptually uniform scale, dark to bright.
const SCALE: [(u8, u8, u8); 5] = [
    (68, 1, 84),
    (59, 82, 139),
    (33, 145, 140),
    (94, 201, 98),
    (253, 231, 37),
];

struct Ink {
    paper: &'static str,
    ink: &'static str,
    dim: &'static str,
    grid: &'static str,
    series: [&'static str; SERIES],
    /// On a dark background high values are bright, on a light one dark.
    much_is_bright: bool,
}

const LIGHT: Ink = Ink {
    paper: "#ffffff",
    ink: "#1f2328",
    dim: "#57606a",
    grid: "#d8dee4",
    series: LIGHT_SERIES,
    much_is_bright: false,
};
const DARK: Ink = Ink {
    paper: "#12161c",
    ink: "#e6edf3",
    dim: "#9aa5b1",
    grid: "#30363d",
    series: DARK_SERIES,
    much_is_bright: true,
};

fn shade(at: usize, much_is_bright: bool) -> String {
    let share = at as f64 / (SHADES - 1) as f64;
    // The brightest end would not show on white, the darkest not on black.
    let place = (if much_is_bright {
        0.12 + 0.88 * share
    } else {
        0.92 * (1.0 - share)
    }) * (SCALE.len() - 1) as f64;
    let low = (place as usize).min(SCALE.len() - 2);
    let part = place - low as f64;
    let between =
        |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
    let ((r, g, b), (r2, g2, b2)) = (SCALE[low], SCALE[low + 1]);
    format!(
        "#{:02x}{:02x}{:02x}",
        between(r, r2),
        between(g, g2),
        between(b, b2)
    )
}

fn rules(ink: &Ink) -> String {
    let mut css = format!(
        ".w-paper{{fill:{0}}}.w-ink{{fill:{1}}}.w-dim{{fill:{2}}}.w-grid{{stroke:{3};stroke-width:1}}.w-axis{{stroke:{2};stroke-width:1}}",
        ink.paper, ink.ink, ink.dim, ink.grid
    );
    for (at, colour) in ink.series.iter().enumerate() {
        // Writing to a string never fails.
        _ = write!(css, ".w-s{at}{{fill:{colour}}}.w-l{at}{{stroke:{colour}}}");
    }
    for at in 0..SHADES {
        _ = write!(css, ".w-h{at}{{fill:{}}}", shade(at, ink.much_is_bright));
    }
    css
}

/// Style sheet of a stand-alone picture.
pub fn alone() -> String {
    rules(&LIGHT)
}

/// Style sheet of pictures within a page, and the page's colours as variables.
pub fn within_page() -> String {
    let variables = |ink: &Ink| {
        format!(
            ":root{{--paper:{};--ink:{};--dim:{};--line:{}}}",
            ink.paper, ink.ink, ink.dim, ink.grid
        )
    };
    format!(
        "{}{}@media (prefers-color-scheme:dark){{{}{}}}",
        variables(&LIGHT),
        rules(&LIGHT),
        variables(&DARK),
        rules(&DARK)
    )
}

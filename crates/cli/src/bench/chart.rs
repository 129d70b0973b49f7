//! Pictures: groups of bars as SVG, without any library.

use std::fmt::Write;

/// Bars side by side, one of each series; a series may have none here.
pub struct Group {
    /// Below the bars.
    pub label: String,
    /// Their heights.
    pub values: Vec<Option<f64>>,
}

impl Group {
    /// With a bar of every series.
    pub fn new(label: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Self { label: label.into(), values: values.into_iter().map(Some).collect() }
    }
}

const HEIGHT: f64 = 240.0;
const TOP: f64 = 72.0;
const BAR: f64 = 44.0;
const GAP: f64 = 24.0;
const COLOURS: [&str; 6] = ["#4f7a3a", "#b08d2f", "#3a6a8c", "#9a4a3a", "#7a5a8c", "#6a6a6a"];

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Few digits for small values, none behind the point for large ones.
fn number(value: f64) -> String {
    match value {
        10_000_000.0.. => format!("{:.1}M", value / 1e6),
        10_000.0.. => format!("{:.0}k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// The picture: `series` names what the bars of every group are.
pub fn groups(title: &str, series: &[&str], groups: &[Group]) -> String {
    let of_group = |group: &Group| group.values.len().max(1) as f64 * BAR + GAP;
    let width = (GAP + groups.iter().map(of_group).sum::<f64>()).max(480.0);
    let most = groups.iter().flat_map(|group| group.values.iter().flatten()).copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{0}\" viewBox=\"0 0 {width} {0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{GAP}\" y=\"20\" font-size=\"14\">{1}</text>\n",
        TOP + HEIGHT + 36.0,
        escape(title)
    );
    let mut at = GAP;
    for (number, name) in series.iter().enumerate().filter(|_| series.len() > 1) {
        let colour = COLOURS[number % COLOURS.len()];
        // Writing to a string does not fail.
        _ = writeln!(
            text,
            "<rect x=\"{at}\" y=\"32\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"41\">{}</text>",
            at + 14.0,
            escape(name)
        );
        at += 36.0 + name.chars().count() as f64 * 6.5;
    }
    let mut left = GAP;
    for group in groups {
        for (number_of, value) in group.values.iter().enumerate() {
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let height = value.max(0.0) / most * HEIGHT;
            let (x, y) = (left + number_of as f64 * BAR, TOP + HEIGHT - height);
            let colour = COLOURS[number_of % COLOURS.len()];
            _ = writeln!(text, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>", BAR - 4.0);
            _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", x + BAR / 2.0 - 2.0, y - 4.0, number(value));
        }
        let middle = left + (of_group(group) - GAP) / 2.0;
        _ = writeln!(text, "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", TOP + HEIGHT + 18.0, escape(&group.label));
        left += of_group(group);
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bar_has_the_full_height_and_text_is_escaped() {
        let picture = groups("a < b", &["one", "two"], &[Group::new("4K", [50.0, 100.0]), Group { label: "8K".to_owned(), values: vec![None, Some(25.0)] }]);
        assert!(picture.contains("height=\"240.0\"") && picture.contains("height=\"120.0\"") && picture.contains("height=\"60.0\""), "{picture}");
        assert!(picture.contains("a &lt; b") && picture.contains(">two<"));
        assert_eq!(picture.matches("text-anchor").count(), 3 + 2, "a label for each bar and each group");
        assert!(groups("none", &[], &[]).ends_with("</svg>\n"));
        assert!(groups("nothing measured", &["one"], &[Group::new("x", [f64::NAN])]).ends_with("</svg>\n"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([number(0.5), number(123.4), number(45_678.0), number(12_345_678.0)], ["0.50", "123", "46k", "12.3M"]);
    }
}

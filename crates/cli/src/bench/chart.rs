//! Pictures: a bar chart as SVG, without any library.

use std::fmt::Write;

/// One bar.
pub struct Bar {
    /// Below the bar.
    pub label: String,
    /// Its height.
    pub value: f64,
}

const HEIGHT: f64 = 240.0;
const BAR: f64 = 48.0;
const GAP: f64 = 24.0;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The picture.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    let width = GAP + bars.len() as f64 * (BAR + GAP);
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{GAP}\" y=\"20\" font-size=\"14\">{2}</text>\n",
        width.max(320.0),
        HEIGHT + 80.0,
        escape(title)
    );
    for (number, bar) in bars.iter().enumerate() {
        let height = bar.value / most * HEIGHT;
        let (x, y) = (GAP + number as f64 * (BAR + GAP), 48.0 + HEIGHT - height);
        let middle = x + BAR / 2.0;
        // Writing to a string does not fail.
        _ = writeln!(text, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BAR}\" height=\"{height:.1}\" fill=\"#4f7a3a\"/>");
        _ = writeln!(text, "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>", y - 4.0, bar.value);
        _ = writeln!(text, "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>", HEIGHT + 66.0, escape(&bar.label));
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_bar_has_the_full_height_and_text_is_escaped() {
        let picture = bars("a < b", &[Bar { label: "4K".to_owned(), value: 50.0 }, Bar { label: "8K".to_owned(), value: 100.0 }]);
        assert!(picture.contains("height=\"240.0\"") && picture.contains("height=\"120.0\"") && picture.contains("a &lt; b"));
        assert!(bars("none", &[]).ends_with("</svg>\n"));
    }
}

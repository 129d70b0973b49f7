//! Charts of benchmarks: groups of bars as SVG.

pub use windrow_charts::Group;
use windrow_charts::{Axis, Bars, Unit};

/// Bar chart: `series` names the bars of every group; the title contains the unit.
pub fn groups(title: &str, series: &[&str], groups: &[Group]) -> String {
    let about = format!(
        "Bars for {}.",
        groups
            .iter()
            .map(|group| group.label.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    );
    Bars::new(title, about, "", Axis::new("", Unit::Number), series)
        .with_all(groups.iter().cloned())
        .picture()
        .svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_bar_and_text_is_escaped() {
        let picture = groups(
            "a < b",
            &["one", "two"],
            &[
                Group::new("4K", [50.0, 100.0]),
                Group {
                    label: "8K".to_owned(),
                    values: vec![None, Some(25.0)],
                },
            ],
        );
        assert!(
            picture.contains("a &lt; b")
                && picture.contains(">two<")
                && picture.contains("8K, two: 25"),
            "{picture}"
        );
        // Three bars with tooltips; the legend has none.
        assert_eq!(picture.matches("<title>").count(), 3);
        assert!(groups("none", &[], &[]).ends_with("</svg>\n"));
        assert!(
            !groups("nothing measured", &["one"], &[Group::new("x", [f64::NAN])]).contains("NaN")
        );
    }
}

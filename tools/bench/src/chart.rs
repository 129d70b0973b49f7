//! Pictures of benchmarks: groups of bars as SVG.

pub use windrow_charts::Group;
use windrow_charts::{Axis, Bars, Unit};

/// The picture: `series` names what the bars of every group are; the title says in which unit.
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
        // Three bars with what a pointer sees on them; the signs of the legend have nothing.
        assert_eq!(picture.matches("<title>").count(), 3);
        assert!(groups("none", &[], &[]).ends_with("</svg>\n"));
        assert!(
            !groups("nothing measured", &["one"], &[Group::new("x", [f64::NAN])]).contains("NaN")
        );
    }
}

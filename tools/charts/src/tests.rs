use super::axis::show;
use super::measure::{escape, fit, width, wrap};
use super::*;

fn ticks(axis: &Axis, least: f64, most: f64, count: usize, exact: bool) -> Vec<String> {
    axis.resolve(least, most, count, exact)
        .ticks
        .into_iter()
        .map(|(_, text)| text)
        .collect()
}

#[test]
fn ticks_are_round_numbers_with_their_unit() {
    let number = Axis::new("", Unit::Number);
    assert_eq!(
        ticks(&number.clone().from(0.0), 0.3, 7.2, 5, false),
        ["0", "2", "4", "6", "8"]
    );
    assert_eq!(
        ticks(&number, 1.02, 1.31, 4, false),
        ["1.0", "1.1", "1.2", "1.3", "1.4"]
    );
    assert_eq!(
        ticks(&number, 0.0, 45_000.0, 5, true),
        ["0", "10k", "20k", "30k", "40k"]
    );
    assert_eq!(
        ticks(&Axis::new("", Unit::Percent), 0.0, 1.0, 5, false),
        ["0", "20 %", "40 %", "60 %", "80 %", "100 %"]
    );
    assert_eq!(
        ticks(
            &Axis::new("", Unit::Bytes),
            0.0,
            3.0 * 1024f64.powi(3),
            3,
            false
        ),
        ["0", "1 GiB", "2 GiB", "3 GiB"]
    );
    assert_eq!(
        ticks(&Axis::new("", Unit::Seconds), 0.0, 7200.0, 4, true),
        ["0", "50 min", "100 min"]
    );
    assert_eq!(
        ticks(
            &Axis::new("", Unit::Bytes).log(),
            4096.0,
            900_000.0,
            4,
            false
        ),
        ["4 KiB", "64 KiB", "1 MiB"]
    );
    assert_eq!(
        ticks(&Axis::new("", Unit::Number).log(), 1.4, 620.0, 4, false),
        ["1", "10", "100", "1000"]
    );
    // A given start has a tick, and a tick too near to it is left out.
    assert_eq!(
        ticks(&number.clone().from(1.0), 1.0, 12.7, 6, false),
        ["1", "2", "4", "6", "8", "10", "12", "14"]
    );
    assert_eq!(
        ticks(&number.clone().from(1.0), 1.0, 33.0, 5, false),
        ["1", "10", "20", "30", "40"]
    );
    // No values, one value and values that are not numbers still give an axis.
    for (least, most) in [
        (f64::INFINITY, f64::NEG_INFINITY),
        (3.0, 3.0),
        (f64::NAN, f64::NAN),
    ] {
        assert!(
            ticks(&number, least, most, 4, false).len() >= 2,
            "{least} to {most}"
        );
    }
}

#[test]
fn an_axis_that_begins_at_zero_places_half_in_the_middle() {
    let axis = Axis::new("", Unit::Number)
        .from(0.0)
        .resolve(2.0, 8.0, 4, true);
    assert_eq!(
        (axis.place(4.0), axis.place(-1.0), axis.place(99.0)),
        (0.5, 0.0, 1.0)
    );
    let log = Axis::new("", Unit::Number)
        .log()
        .resolve(1.0, 100.0, 4, false);
    assert!((log.place(10.0) - 0.5).abs() < 1e-9);
}

#[test]
fn values_are_short() {
    let all = [
        (Unit::Factor, 1.2955),
        (Unit::Number, 123.4),
        (Unit::Number, 45_678.0),
        (Unit::Bytes, 22_077.0),
        (Unit::Percent, 0.625),
        (Unit::Seconds, 0.0042),
    ];
    assert_eq!(
        all.map(|(unit, value)| show(unit, value)),
        ["1.296", "123", "45.7k", "21.6 KiB", "62.5 %", "4.2 ms"]
    );
}

#[test]
fn text_is_escaped_measured_and_cut() {
    assert_eq!(
        escape("a<b> & \"c\"\u{7}"),
        "a&lt;b&gt; &amp; &quot;c&quot; "
    );
    let cut = fit("a rather long name of something", 12.0, 80.0);
    assert!(cut.ends_with('…') && width(&cut, 12.0) <= 80.0, "{cut}");
    assert_eq!(fit("short", 12.0, 80.0), "short");
    let lines = wrap("80 % of writes soon overwritten", 12.0, 120.0, 3).expect("two lines");
    assert_eq!(lines, ["80 % of writes", "soon overwritten"]);
    assert_eq!(
        (
            wrap("incomprehensibilities", 12.0, 60.0, 3),
            wrap("a b c d", 12.0, 10.0, 3)
        ),
        (None, None)
    );
}

fn pictures() -> Vec<Picture> {
    let waf = || Axis::new("write amplification", Unit::Number).from(1.0);
    let line = Lines::new(
        "Over time",
        "It rises & falls.",
        Axis::new("overwrites", Unit::Number),
        waf(),
    )
    .with(Series::new(
        "greedy",
        [(0.0, 1.0), (1.0, 3.0), (2.0, f64::NAN), (3.0, 2.0)],
    ))
    .with(Series::new("ours", [(0.0, 1.0), (3.0, 1.4)]).dots())
    .mark(2.5, "published");
    let bars = Bars::new(
        "Sizes",
        "Most are small.",
        "size",
        Axis::new("share", Unit::Percent),
        &["count", "bytes"],
    )
    .with(Group::new("4 KiB", [0.75, 0.12]))
    .with(Group {
        label: "a long <label> that has to be turned".into(),
        values: vec![None, Some(0.5)],
    });
    let heat = Heat {
        title: "Writes".into(),
        about: "A ring and a scan.".into(),
        x: Axis::new("time", Unit::Seconds).from(0.0).to(60.0),
        y: Axis::new("address", Unit::Bytes).from(0.0).to(1e9),
        unit: Unit::Bytes,
        what: "bytes in a cell".into(),
        columns: 3,
        cells: vec![0.0, 1.0, 1000.0, 1000.0, 1000.0, 0.0],
    };
    let empty = Heat {
        cells: vec![0.0; 6],
        ..heat.clone()
    };
    vec![
        line.picture(),
        bars.picture(),
        heat.picture(),
        empty.picture(),
        Bars::new("none", "", "", waf(), &[]).picture(),
    ]
}

#[test]
fn every_picture_is_drawn_as_svg_and_as_png() {
    for picture in pictures() {
        let svg = picture.svg();
        assert!(
            svg.starts_with("<svg ")
                && svg.ends_with("</svg>\n")
                && svg.contains("role=\"img\"")
                && !svg.contains("NaN"),
            "{svg}"
        );
        assert!(
            !svg.contains("<label>") && !svg.contains("rises & falls"),
            "text is escaped"
        );
        match picture.png(1.0) {
            Ok(png) => assert!(png.starts_with(b"\x89PNG") && png.len() > 500),
            // A machine without fonts reports that.
            Err(error) => assert!(matches!(error, PngError::NoFont), "{error}"),
        }
    }
    assert!(matches!(
        pictures()[0].png(1000.0),
        Err(PngError::Size(..) | PngError::NoFont)
    ));
}

#[test]
fn long_names_lay_the_bars_down_and_are_whole() {
    let waf = || Axis::new("years", Unit::Number);
    let bars = |name: &str| {
        (0..9).fold(Bars::new("Life", "", "", waf(), &["one"]), |bars, at| {
            bars.with(Group::new(format!("{name} {at}"), [f64::from(at)]))
        })
    };
    let long = bars("a standard layer with spare number").picture();
    assert!(
        long.svg()
            .contains(">a standard layer with spare number 8</text>"),
        "{}",
        long.svg()
    );
    // Short names give vertical bars: their numbers are centred on the bars.
    assert!(
        bars("x")
            .picture()
            .svg()
            .contains("text-anchor=\"middle\" transform")
            || bars("x").picture().svg().contains(">x 8</text>")
    );
    assert!(long.height > bars("x").picture().height * 0.5);
}

#[test]
fn equal_cells_side_by_side_are_one_run() {
    let svg = pictures()[2].svg();
    // Two shades: the minimum once, the maximum in one run of the upper row and one cell of the
    // lower.
    let runs = |class: &str| {
        svg.split("<path ")
            .find(|path| path.contains(&format!("\"{class}\"")))
            .map_or(0, |path| path.matches('M').count())
    };
    assert_eq!((runs("w-h0"), runs("w-h11")), (1, 2), "{svg}");
}

#[test]
fn a_page_is_self_contained_and_has_both_themes() {
    let mut table = Table::new("Results", ["policy", "WAF"]);
    table.row(["none", "3.2"]);
    let page = pictures()
        .iter()
        .fold(Page::new("A <report>", "What was run."), |page, picture| {
            page.section("Part").picture(picture)
        })
        .table(&table)
        .render();
    assert!(
        page.contains("prefers-color-scheme:dark")
            && page.contains("A &lt;report&gt;")
            && page.contains("<th scope=\"row\">none</th><td class=\"n\">3.2</td>")
    );
    for outside in ["<script", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // The only URL is the name of SVG's name space.
    assert_eq!(page.matches("http").count(), pictures().len());
    assert_eq!(page.matches("aria-label=").count(), pictures().len());
}

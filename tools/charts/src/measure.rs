//! Width of text. Fonts differ; these are the widths of a wide one (DejaVu Sans) in thousandths of
//! its size, so that text that fits here fits elsewhere.

/// Width of a text in pixels at a font size.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size / 1000.0
}

fn advance(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '\'' | '|' | 'I' => 300.0,
        '.' | ',' | ':' | ';' | ' ' | '!' | 'f' | 't' | 'r' | '/' | '-' | '(' | ')' => 410.0,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 980.0,
        'A'..='Z' => 720.0,
        '0'..='9' => 640.0,
        _ => 630.0,
    }
}

/// Escapes a text for XML and HTML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no other control characters, and names come from foreign data.
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The text, cut to fit.
pub fn fit(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut cut = String::new();
    for character in text.chars() {
        if width(&cut, size) + advance(character) * size / 1000.0 + size > room {
            break;
        }
        cut.push(character);
    }
    cut.trim_end().to_owned() + "…"
}

/// The text in lines that fit, broken between words; `None` if it needs more than `most` lines.
pub fn wrap(text: &str, size: f64, room: f64, most: usize) -> Option<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    (lines.len() <= most && lines.iter().all(|line| width(line, size) <= room)).then_some(lines)
}

//! Reports: self-contained HTML pages, light or dark according to the reader's system.

use crate::measure::escape;
use crate::picture::Picture;
use crate::theme;
use std::fmt::Write;

/// A table of text; columns of numbers are aligned to the right.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    caption: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with a caption and the names of the columns.
    pub fn new(
        caption: impl Into<String>,
        head: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            caption: caption.into(),
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; its first cell names it.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    fn render(&self) -> String {
        let number = |cell: &String| {
            cell.is_empty() || cell == "-" || cell.starts_with(|first: char| first.is_ascii_digit())
        };
        let right: Vec<bool> = (0..self.head.len())
            .map(|at| at > 0 && self.rows.iter().filter_map(|row| row.get(at)).all(number))
            .collect();
        let class = |at: usize| {
            if right.get(at).copied().unwrap_or(false) {
                " class=\"n\""
            } else {
                ""
            }
        };
        let mut html = format!(
            "<div class=\"wide\"><table><caption>{}</caption><thead><tr>",
            escape(&self.caption)
        );
        for (at, name) in self.head.iter().enumerate() {
            // Writing to a string never fails.
            _ = write!(html, "<th scope=\"col\"{}>{}</th>", class(at), escape(name));
        }
        html.push_str("</tr></thead><tbody>\n");
        for row in &self.rows {
            html.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                _ = match at {
                    0 => write!(html, "<th scope=\"row\">{}</th>", escape(cell)),
                    _ => write!(html, "<td{}>{}</td>", class(at), escape(cell)),
                };
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody></table></div>\n");
        html
    }
}

/// A report.
#[derive(Clone, PartialEq, Debug)]
pub struct Page {
    title: String,
    body: String,
}

const STYLE: &str = "body{background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,'DejaVu Sans',sans-serif;margin:0 auto;max-width:56rem;padding:1.5rem}\
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .5rem}h2{font-size:1.2rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}\
p{margin:.5rem 0}figure{margin:1rem 0;border:1px solid var(--line);border-radius:6px;overflow:hidden}figure svg{display:block;width:100%;height:auto}\
figcaption{padding:.4rem .9rem;color:var(--dim);font-size:.9rem;border-top:1px solid var(--line)}\
.wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}\
caption{text-align:left;color:var(--dim);padding:0 0 .3rem}th,td{padding:.25rem .8rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}\
tbody th{font-weight:normal}th.n,td.n{text-align:right}pre{background:color-mix(in srgb,var(--line) 40%,transparent);padding:.6rem .9rem;border-radius:6px;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.9rem}\
@media print{body{max-width:none}figure,table{break-inside:avoid}}";

impl Page {
    /// A page with a title and a first paragraph.
    pub fn new(title: impl Into<String>, lead: &str) -> Self {
        Self {
            title: title.into(),
            body: String::new(),
        }
        .text(lead)
    }

    /// Begins a section.
    #[must_use]
    pub fn section(mut self, heading: &str) -> Self {
        _ = writeln!(self.body, "<h2>{}</h2>", escape(heading));
        self
    }

    /// A paragraph; nothing if it is empty.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        if !text.is_empty() {
            _ = writeln!(self.body, "<p>{}</p>", escape(text));
        }
        self
    }

    /// Text in command format.
    #[must_use]
    pub fn command(mut self, text: &str) -> Self {
        _ = writeln!(self.body, "<pre><code>{}</code></pre>", escape(text));
        self
    }

    /// A table.
    #[must_use]
    pub fn table(mut self, table: &Table) -> Self {
        self.body.push_str(&table.render());
        self
    }

    /// A picture with its description below it.
    #[must_use]
    pub fn picture(mut self, picture: &Picture) -> Self {
        _ = writeln!(
            self.body,
            "<figure>\n{}<figcaption>{}</figcaption></figure>",
            picture.inline(),
            escape(picture.about())
        );
        self
    }

    /// The page.
    pub fn render(&self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{0}</title>\n<style>{1}{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n{2}</main>\n</body>\n</html>\n",
            escape(&self.title),
            theme::within_page(),
            self.body
        )
    }
}

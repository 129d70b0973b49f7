//! Reports and charts as files: `--report PAGE.html`, `--pictures FOLDER`.
//!
//! A report is built once and goes to both: the page holds all of it, the folder each chart as SVG
//! and as PNG. Complete files are renamed to their names.

use clap::Args;
use std::path::{Path, PathBuf};
use windrow_charts::{Page, Picture, PngError, Table};
use windrow_console::files::{cannot, save};
use windrow_host::Failure;
use windrow_host::failure::id;

/// PNG pixels per SVG pixel.
const PNG_SCALE: f32 = 2.0;

/// Destinations of a report.
#[derive(Args, Clone, Debug, Default)]
pub struct ReportArguments {
    /// Write a report with charts: one self-contained HTML page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write each chart of the report into this folder, as SVG and as PNG.
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
}

impl ReportArguments {
    /// True if anything is to be written.
    pub fn wanted(&self) -> bool {
        self.report.is_some() || self.pictures.is_some()
    }

    /// Writes the requested files; the report is built only then.
    pub fn write(&self, build: impl FnOnce() -> Report) -> Result<(), Failure> {
        if !self.wanted() {
            return Ok(());
        }
        let report = build();
        if let Some(path) = &self.report {
            save(path, report.render().as_bytes())?;
        }
        if let Some(folder) = &self.pictures {
            std::fs::create_dir_all(folder).map_err(|error| cannot(folder, error))?;
            for (name, picture) in &report.pictures {
                save_picture(&folder.join(format!("{name}.svg")), picture)?;
                save_picture(&folder.join(format!("{name}.png")), picture)?;
            }
        }
        Ok(())
    }
}

/// A report being built.
pub struct Report {
    page: Page,
    pictures: Vec<(String, Picture)>,
}

impl Report {
    /// A report with a title, a lead, and the command that created it.
    pub fn new(title: &str, lead: &str) -> Self {
        let page = Page::new(title, lead).command(&command_line());
        Self {
            page,
            pictures: Vec::new(),
        }
    }

    /// Begins a section.
    #[must_use]
    pub fn section(mut self, heading: &str) -> Self {
        self.page = self.page.section(heading);
        self
    }

    /// A paragraph.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.page = self.page.text(text);
        self
    }

    /// A command line.
    #[must_use]
    pub fn command(mut self, text: &str) -> Self {
        self.page = self.page.command(text);
        self
    }

    /// A table.
    #[must_use]
    pub fn table(mut self, table: &Table) -> Self {
        self.page = self.page.table(table);
        self
    }

    /// A chart; `name` is its file name, made unique if necessary.
    #[must_use]
    pub fn picture(mut self, name: &str, picture: &Picture) -> Self {
        self.page = self.page.picture(picture);
        let same = self
            .pictures
            .iter()
            .filter(|(other, _)| {
                other == name
                    || other
                        .strip_prefix(name)
                        .is_some_and(|rest| rest.starts_with('.'))
            })
            .count();
        let name = if same == 0 {
            name.to_owned()
        } else {
            format!("{name}.{}", same + 1)
        };
        self.pictures.push((name, picture.clone()));
        self
    }

    /// The page.
    pub fn render(&self) -> String {
        self.page.render()
    }
}

/// The command line, so that readers of the report can repeat it.
fn command_line() -> String {
    let quoted = |word: String| {
        if word.is_empty()
            || word.contains(|c: char| c.is_whitespace() || "'\"$`\\*?;&|<>()".contains(c))
        {
            format!("'{word}'")
        } else {
            word
        }
    };
    let words = std::env::args().skip(1).map(quoted);
    std::iter::once("windrow-lab".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Writes a chart in the format of its file name: PNG if it ends in `.png`, else SVG.
pub fn save_picture(path: &Path, picture: &Picture) -> Result<(), Failure> {
    if path
        .extension()
        .is_none_or(|ending| !ending.eq_ignore_ascii_case("png"))
    {
        return save(path, picture.svg().as_bytes());
    }
    let png = picture.png(PNG_SCALE).map_err(|error| {
        let remedy = match error {
            PngError::NoFont => "install a font (Debian: fonts-dejavu-core), or write SVG",
            PngError::Size(..) | PngError::Draw(_) => "write SVG",
        };
        Failure::new(
            id::NOT_AVAILABLE,
            format!("cannot draw {}", path.display()),
            error,
        )
        .remedy(remedy)
    })?;
    save(path, &png)
}

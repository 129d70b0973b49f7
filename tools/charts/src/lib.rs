//! Charts and reports: charts as SVG and PNG, self-contained HTML pages.
//!
//! 1. Numbers come in as a [`Lines`], [`Bars`] or [`Heat`]; each computes its layout and becomes a
//!    [`Picture`].
//! 2. A picture is SVG whose colours are classes (`theme`). Alone it contains a style sheet; within
//!    a [`Page`] the page's sheet applies, which has a light and a dark form.
//! 3. [`Picture::png`] draws it with the fonts of the system.
//!
//! Rules for all charts: axes start where they are labelled, ticks are round numbers with their
//! unit, text is measured before it is placed (`measure`, conservatively), and every picture has a
//! title and a sentence for readers who cannot see it. Equal input gives equal bytes, except PNG,
//! which depends on the installed fonts.

mod axis;
mod bars;
mod canvas;
mod frame;
mod heat;
mod lines;
mod measure;
mod page;
mod picture;
mod sideways;
mod theme;

pub use axis::{Axis, Scale, Unit};
pub use bars::{Bars, Group};
pub use heat::Heat;
pub use lines::{Lines, Series};
pub use page::{Page, Table};
pub use picture::{Picture, PngError};

#[cfg(test)]
mod tests;

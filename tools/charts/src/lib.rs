//! Pictures and reports: charts as SVG and PNG, pages of HTML that need nothing beside them.
//!
//! 1. Numbers come in as a [`Lines`], [`Bars`] or [`Heat`]; each lays itself out and becomes a
//!    [`Picture`]. 2. A picture is SVG whose colours are classes (`theme`): alone it brings a style
//!    sheet with it, within a [`Page`] the page's holds, which has a light and a dark form. 3.
//!    [`Picture::png`] draws it with the fonts of the system.
//!
//! What all charts keep to: axes begin where they say, ticks are round numbers with their unit,
//! text is measured before it is placed (`measure`, on the safe side), and every picture has a
//! title and a sentence for those who cannot see it. Equal input gives equal bytes, but for PNG,
//! which depends on the fonts that are installed.

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

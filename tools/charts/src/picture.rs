//! A finished picture.

use crate::measure::escape;
use crate::theme;
use resvg::{tiny_skia, usvg};

/// A picture: SVG without colours, its size, and its description.
#[derive(Clone, PartialEq, Debug)]
pub struct Picture {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) body: String,
}

/// Reason that there is no PNG.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// Text cannot be drawn.
    #[error("no font is installed, so that text cannot be drawn")]
    NoFont,
    /// Larger than the limit.
    #[error("{0} by {1} pixels are too many")]
    Size(u32, u32),
    /// The drawing library refused it.
    #[error("{0}")]
    Draw(String),
}

/// Maximum pixels of a side.
const SIDE_MOST: u32 = 16_384;

impl Picture {
    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its description.
    pub fn about(&self) -> &str {
        &self.about
    }

    fn render(&self, style: &str, scales: bool) -> String {
        let (width, height) = (self.width.ceil(), self.height.ceil());
        let size = if scales {
            String::new()
        } else {
            format!(" width=\"{width}\" height=\"{height}\"")
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\"{size} viewBox=\"0 0 {width} {height}\" font-family=\"'DejaVu Sans',Verdana,sans-serif\" role=\"img\" aria-label=\"{}\">\n\
             {style}<rect width=\"{width}\" height=\"{height}\" class=\"w-paper\"/>\n{}</svg>\n",
            escape(&format!("{}. {}", self.title, self.about)),
            self.body
        )
    }

    /// The picture as a stand-alone file.
    pub fn svg(&self) -> String {
        self.render(&format!("<style>{}</style>\n", theme::alone()), false)
    }

    /// The picture within a page, whose style sheet has the colours; as wide as there is room.
    pub(crate) fn inline(&self) -> String {
        self.render("", true)
    }

    /// The picture as PNG, `scale` pixels per SVG pixel.
    ///
    /// # Errors
    /// If no font is installed, or the picture would be too large.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, PngError> {
        let mut options = usvg::Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        let family = ["DejaVu Sans", "Liberation Sans", "Noto Sans"]
            .into_iter()
            .find(|name| fonts.faces().any(|face| face.families[0].0 == *name));
        let family = family.map(str::to_owned).or_else(|| {
            fonts
                .faces()
                .next()
                .and_then(|face| Some(face.families.first()?.0.clone()))
        });
        fonts.set_sans_serif_family(family.ok_or(PngError::NoFont)?);
        let tree = usvg::Tree::from_str(&self.svg(), &options)
            .map_err(|error| PngError::Draw(error.to_string()))?;
        let side = |length: f32| (length * scale).ceil() as u32;
        let (width, height) = (side(tree.size().width()), side(tree.size().height()));
        // Checked first: the pixels of a refused picture must not be allocated.
        let fits = width <= SIDE_MOST && height <= SIDE_MOST;
        let mut pixels = fits
            .then(|| tiny_skia::Pixmap::new(width, height))
            .flatten()
            .ok_or(PngError::Size(width, height))?;
        resvg::render(
            &tree,
            tiny_skia::Transform::from_scale(scale, scale),
            &mut pixels.as_mut(),
        );
        pixels
            .encode_png()
            .map_err(|error| PngError::Draw(error.to_string()))
    }
}

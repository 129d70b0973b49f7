//! Drives, and catalogues of them (TOML).
//!
//! A catalogue is a list of `[[drive]]` tables; each names the source and the year of its figures.
//! Unknown figures are omitted, and results that need them are not computed. [`builtin`] has the
//! drives of the published tables and some current ones.

use serde::{Deserialize, Serialize};

/// A drive model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// Short name for the command line.
    pub id: String,
    /// Maker and model.
    pub name: String,
    /// `consumer`, `read-intensive`, `data-centre`, `enterprise` or the maker's class.
    #[serde(default)]
    pub class: String,
    /// Capacity in GB (10^9), as labelled.
    pub capacity_gb: f64,
    /// Price of one, in the currency of `currency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// Currency of the price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Random writes of 4 KiB per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_write_iops: Option<f64>,
    /// Random reads of 4 KiB per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_read_iops: Option<f64>,
    /// Linear writes, MB/s (10^6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_write_mb_s: Option<f64>,
    /// Erase cycles of the flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erase_cycles: Option<f64>,
    /// Published overwrites a day for five years, net of the drive's own amplification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrites_per_day: Option<f64>,
    /// Write amplification inside the drive under random writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear_amplification: Option<f64>,
    /// Source of the figures.
    #[serde(default)]
    pub source: String,
    /// Year of the figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year: Option<u32>,
}

impl Drive {
    /// Overwrites a day for five years that the flash allows without amplification: from the erase
    /// cycles, else as published.
    pub fn linear_rating(&self) -> Option<f64> {
        self.erase_cycles
            .map(|cycles| cycles / crate::FIVE_YEARS_DAYS)
            .or(self.overwrites_per_day)
    }

    /// Rating that random writes are computed from: as published, else from the erase cycles.
    pub fn random_rating(&self) -> Option<f64> {
        self.overwrites_per_day.or_else(|| self.linear_rating())
    }

    /// True if only a published rating is known, which is already net of the drive's amplification.
    pub fn rating_is_net(&self) -> bool {
        self.erase_cycles.is_none() && self.overwrites_per_day.is_some()
    }
}

/// A list of drives.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The drives.
    #[serde(default, rename = "drive")]
    pub drives: Vec<Drive>,
}

/// Reason that a catalogue cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It is not the expected TOML.
    #[error("{0}")]
    Syntax(String),
    /// A value that no drive can have.
    #[error("drive '{drive}': {field} is {value}, and must be more than 0 and at most {most}")]
    Value {
        /// Drive.
        drive: String,
        /// Field.
        field: &'static str,
        /// Value.
        value: String,
        /// Largest accepted value.
        most: f64,
    },
    /// Two drives have the same id.
    #[error("two drives are called '{0}'")]
    Twice(String),
}

/// Largest value of any field; keeps every result finite.
const MOST: f64 = 1e12;

impl Catalogue {
    /// Reads a catalogue.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let catalogue: Self =
            toml::from_str(text).map_err(|error| CatalogueError::Syntax(syntax(text, &error)))?;
        for (index, drive) in catalogue.drives.iter().enumerate() {
            check(drive)?;
            if catalogue.drives[..index]
                .iter()
                .any(|other| other.id == drive.id)
            {
                return Err(CatalogueError::Twice(drive.id.clone()));
            }
        }
        Ok(catalogue)
    }

    /// Looks up a drive by id.
    pub fn get(&self, id: &str) -> Option<&Drive> {
        self.drives.iter().find(|drive| drive.id == id)
    }
}

/// One line with the position of the error.
fn syntax(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| {
        text.get(..span.start)
            .unwrap_or_default()
            .matches('\n')
            .count()
            + 1
    });
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    line.map_or(message.clone(), |line| format!("line {line}: {message}"))
}

fn check(drive: &Drive) -> Result<(), CatalogueError> {
    let fields = [
        ("capacity_gb", Some(drive.capacity_gb)),
        ("price", drive.price),
        ("random_write_iops", drive.random_write_iops),
        ("random_read_iops", drive.random_read_iops),
        ("linear_write_mb_s", drive.linear_write_mb_s),
        ("erase_cycles", drive.erase_cycles),
        ("overwrites_per_day", drive.overwrites_per_day),
        ("wear_amplification", drive.wear_amplification),
    ];
    for (field, value) in fields {
        // This form also refuses values that are not numbers.
        if let Some(value) = value
            && !(value > 0.0 && value <= MOST)
        {
            return Err(CatalogueError::Value {
                drive: drive.id.clone(),
                field,
                value: value.to_string(),
                most: MOST,
            });
        }
    }
    Ok(())
}

/// The built-in catalogue.
pub fn builtin() -> Catalogue {
    // The text is part of the program and a test reads it, so the test would find an empty list
    // here.
    Catalogue::parse(BUILTIN).unwrap_or_default()
}

/// Its text, as a template for other catalogues.
pub const BUILTIN: &str = include_str!("catalogue.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_sound_and_every_drive_names_its_source() {
        let catalogue = Catalogue::parse(BUILTIN).expect("sound");
        assert_eq!(catalogue, builtin());
        assert!(catalogue.drives.len() > 10);
        for drive in &catalogue.drives {
            assert!(
                !drive.source.is_empty() && drive.year.is_some() && !drive.class.is_empty(),
                "{} tells too little of itself",
                drive.id
            );
            assert!(
                drive.price.is_none() || drive.currency.is_some(),
                "{}: a price of no currency",
                drive.id
            );
            assert!(
                drive.linear_rating().is_some(),
                "{} cannot be planned with",
                drive.id
            );
        }
    }

    #[test]
    fn errors_are_reported_with_their_position() {
        let error = |text: &str| Catalogue::parse(text).expect_err("wrong").to_string();
        assert!(
            error("[[drive]]\nid = \"a\"\nname = \"A\"\ncapacity_gb = 1\nprize = 3\n")
                .starts_with("line 5: unknown field `prize`")
        );
        assert!(
            error("[[drive]]\nid = \"a\"\nname = \"A\"\n").contains("missing field `capacity_gb`")
        );
        let one = "[[drive]]\nid = \"a\"\nname = \"A\"\ncapacity_gb = 1\n";
        assert_eq!(error(&format!("{one}{one}")), "two drives are called 'a'");
        for value in ["0", "-1", "nan", "inf", "1e13"] {
            assert!(
                error(&one.replace("gb = 1", &format!("gb = {value}")))
                    .starts_with("drive 'a': capacity_gb is "),
                "{value}"
            );
        }
    }
}

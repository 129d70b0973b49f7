//! Floor 3: work that keeps the pool in order alongside the requests: cleaning, checkpoints, scrub,
//! rebuild, changes of members and of the layout.

pub(crate) mod checkpoint;
pub(crate) mod clean;
mod exhausted;
pub(crate) mod membership;
pub(crate) mod rebuild;
mod reduction;
pub(crate) mod reshape;
mod rounds;
pub(crate) mod saved;
pub(crate) mod scrub;
pub(crate) mod survey;
pub(crate) mod verification;

/// Work that keeps the pool in order alongside the requests: cleaning, checkpoints, scrub, rebuild,
/// changes of members.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    pub(crate) integrity: Integrity,
    pub(crate) reshape: reshape::Reshape,
}

/// Verification and restoration of what the members hold.
#[derive(Debug, Default)]
pub(crate) struct Integrity {
    pub(crate) verifications: crate::base::slab::Slab<verification::Verification>,
    pub(crate) scrub: scrub::Scrub,
    pub(crate) rebuild: rebuild::Rebuild,
    pub(crate) survey: survey::Survey,
}

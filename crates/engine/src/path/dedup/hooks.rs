//! Hooks: index page of each fingerprint in a sample.
//!
//! 1. The fingerprint alone determines membership in the sample, bucket and tag.
//! 2. An entry is eight bytes: tag, page, generation of the page, and a used bit. Buckets have
//!    eight entries. In a full one an entry of a rewritten page is evicted, else the first one
//!    unused since the hand last passed (second chance).
//! 3. A tag may be that of another fingerprint: then a page is read without a match, and nothing
//!    else happens.

/// Number of entries in a bucket.
const WAYS: usize = 8;
const NONE: u64 = u64::MAX;
const USED: u64 = 1 << 63;
const GENERATION_SHIFT: u32 = 28;
const TAG_SHIFT: u32 = 36;
const TAG_BITS: u32 = 27;
const PAGE_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
/// Planned load of three quarters: buckets do not fill evenly.
const LOAD: (u64, u64) = (3, 4);
/// Sample size: at least one fingerprint in 2^4.
const SAMPLE_SHIFT_MAX: u32 = 4;

#[derive(Clone, Debug)]
struct Bucket {
    entries: [u64; WAYS],
    hand: u8,
}

/// Size of a bucket in bytes.
pub(crate) const BUCKET_BYTES: u64 = size_of::<Bucket>() as u64;

/// Least bytes of hooks for this number of fingerprints.
pub(crate) const fn bytes_least(fingerprints: u64) -> u64 {
    (fingerprints >> SAMPLE_SHIFT_MAX).div_ceil(WAYS as u64 * LOAD.0 / LOAD.1) * BUCKET_BYTES
}

/// Hook table; see the module.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    buckets: Vec<Bucket>,
    /// Sample size: one fingerprint in 2^this.
    sample_shift: u32,
    entries: u64,
}

impl Hooks {
    /// Table for this number of fingerprints within `bytes`: the sample is as large as fits.
    pub(crate) fn new(fingerprints: u64, bytes: u64) -> Self {
        let wanted = (fingerprints * LOAD.1 / LOAD.0).div_ceil(WAYS as u64);
        let buckets = wanted.min(bytes / BUCKET_BYTES);
        let room = buckets * WAYS as u64 * LOAD.0 / LOAD.1;
        let sample_shift = (0..SAMPLE_SHIFT_MAX)
            .find(|shift| fingerprints >> shift <= room)
            .unwrap_or(SAMPLE_SHIFT_MAX);
        Self {
            buckets: vec![
                Bucket {
                    entries: [NONE; WAYS],
                    hand: 0
                };
                buckets as usize
            ],
            sample_shift,
            entries: 0,
        }
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.buckets.len() as u64 * BUCKET_BYTES
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Bucket and tag of a sampled fingerprint.
    fn place(&self, fingerprint: u128) -> Option<(usize, u64)> {
        // Fingerprints of tests have few bits.
        let mixed = ((fingerprint >> 1) as u64 ^ (fingerprint >> 64) as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let is_sampled = self.sample_shift == 0 || mixed >> (64 - self.sample_shift) == 0;
        if !is_sampled || self.buckets.is_empty() {
            return None;
        }
        let spread = (mixed << SAMPLE_SHIFT_MAX) >> 32;
        let tag = (mixed ^ mixed >> 32) & ((1 << TAG_BITS) - 1);
        Some((((spread * self.buckets.len() as u64) >> 32) as usize, tag))
    }

    /// Page of a fingerprint, as far as known. `generation` returns the present generation of a
    /// page.
    pub(crate) fn find(
        &mut self,
        fingerprint: u128,
        generation: impl Fn(u32) -> u8,
    ) -> Option<u32> {
        let (at, tag) = self.place(fingerprint)?;
        let entry = self.buckets[at].entries.iter_mut().find(|entry| {
            **entry != NONE && tag_of(**entry) == tag && is_current(**entry, &generation)
        })?;
        *entry |= USED;
        Some(page_of(*entry))
    }

    /// Records that a fingerprint is in a page, under its present `generation`.
    pub(crate) fn insert(&mut self, fingerprint: u128, page: u32, generation: impl Fn(u32) -> u8) {
        let Some((at, tag)) = self.place(fingerprint) else {
            return;
        };
        let bucket = &mut self.buckets[at];
        let new =
            tag << TAG_SHIFT | u64::from(generation(page)) << GENERATION_SHIFT | u64::from(page);
        let same = (0..WAYS)
            .find(|way| bucket.entries[*way] != NONE && tag_of(bucket.entries[*way]) == tag);
        let free = || {
            (0..WAYS).find(|way| {
                bucket.entries[*way] == NONE || !is_current(bucket.entries[*way], &generation)
            })
        };
        let way = same.or_else(free).unwrap_or_else(|| {
            loop {
                let way = usize::from(bucket.hand);
                bucket.hand = (bucket.hand + 1) % WAYS as u8;
                if bucket.entries[way] & USED == 0 {
                    break way;
                }
                bucket.entries[way] &= !USED;
            }
        });
        self.entries += u64::from(bucket.entries[way] == NONE);
        bucket.entries[way] = new;
    }
}

fn tag_of(entry: u64) -> u64 {
    (entry & !USED) >> TAG_SHIFT
}

fn page_of(entry: u64) -> u32 {
    (entry & PAGE_MASK) as u32
}

fn is_current(entry: u64, generation: &impl Fn(u32) -> u8) -> bool {
    (entry >> GENERATION_SHIFT) as u8 == generation(page_of(entry))
}

const _: () = assert!(windrow_format::index_page::INDEX_PAGES_MAX <= 1 << GENERATION_SHIFT);
const _: () = assert!(GENERATION_SHIFT + 8 == TAG_SHIFT && TAG_SHIFT + TAG_BITS == 63);

#[cfg(test)]
mod tests;

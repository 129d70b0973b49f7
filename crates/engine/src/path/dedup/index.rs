//! Fingerprint index: fingerprint -> id, of a fixed size.
//!
//! The fingerprint selects a bucket of eight entries. In a full bucket a hand moves round and
//! evicts the first entry that was not used since it last passed (second chance). Entries do not
//! move, so an id knows its slot, and is removed with its last reference: every id in the index is
//! in use.

/// Number of entries in a bucket.
const WAYS: usize = 8;
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Bucket {
    fingerprints: [u128; WAYS],
    ids: [u32; WAYS],
    /// Bit for each entry that was used since the hand passed.
    used: u8,
    /// Bit for each entry whose content was read and matched since the start.
    proven: u8,
    hand: u8,
}

const EMPTY: Bucket = Bucket {
    fingerprints: [0; WAYS],
    ids: [NONE; WAYS],
    used: 0,
    proven: 0,
    hand: 0,
};

/// Index; see the module.
#[derive(Debug, Default)]
pub(crate) struct Index {
    buckets: Vec<Bucket>,
    entries: u64,
    /// Number of entries ever inserted, modulo 2^32.
    taken: u32,
}

impl Index {
    /// Index for this number of entries within `bytes`; at least one bucket.
    pub(crate) fn new(entries: u64, bytes: u64) -> Self {
        let buckets = entries
            .div_ceil(WAYS as u64)
            .min(bytes / size_of::<Bucket>() as u64)
            .max(1);
        Self {
            buckets: vec![EMPTY; buckets as usize],
            entries: 0,
            taken: 0,
        }
    }

    /// True if it has no memory yet.
    pub(crate) fn is_missing(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.buckets.len() * size_of::<Bucket>()) as u64
    }

    /// Number of entries, and its limit.
    pub(crate) fn entries(&self) -> (u64, u64) {
        (self.entries, (self.buckets.len() * WAYS) as u64)
    }

    /// Bucket: the upper half of the fingerprint scaled to the number of buckets.
    fn bucket(&self, fingerprint: u128) -> usize {
        (((fingerprint >> 64) * self.buckets.len() as u128) >> 64) as usize
    }

    /// Number of entries ever inserted, modulo 2^32.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// True if the fingerprint is present. This does not count as a use.
    pub(crate) fn holds(&self, fingerprint: u128) -> bool {
        let bucket = self.buckets.get(self.bucket(fingerprint));
        bucket.is_some_and(|bucket| {
            (0..WAYS).any(|way| bucket.fingerprints[way] == fingerprint && bucket.ids[way] != NONE)
        })
    }

    /// True if it can be inserted without an eviction.
    pub(crate) fn has_room(&self, fingerprint: u128) -> bool {
        self.buckets
            .get(self.bucket(fingerprint))
            .is_some_and(|bucket| bucket.ids.contains(&NONE))
    }

    /// Id of a fingerprint.
    pub(crate) fn find(&mut self, fingerprint: u128) -> Option<u32> {
        let at = self.bucket(fingerprint);
        let bucket = self.buckets.get_mut(at)?;
        let way = (0..WAYS)
            .find(|way| bucket.fingerprints[*way] == fingerprint && bucket.ids[*way] != NONE)?;
        bucket.used |= 1 << way;
        Some(bucket.ids[way])
    }

    /// Inserts an id under a new fingerprint. Returns its slot and the evicted id.
    pub(crate) fn insert(&mut self, fingerprint: u128, id: u32) -> (u32, Option<u32>) {
        let at = self.bucket(fingerprint);
        let bucket = &mut self.buckets[at];
        let free = (0..WAYS).find(|way| bucket.ids[*way] == NONE);
        let way = free.unwrap_or_else(|| {
            loop {
                let way = usize::from(bucket.hand);
                bucket.hand = (bucket.hand + 1) % WAYS as u8;
                if bucket.used >> way & 1 == 0 {
                    break way;
                }
                bucket.used &= !(1 << way);
            }
        });
        let former = std::mem::replace(&mut bucket.ids[way], id);
        bucket.fingerprints[way] = fingerprint;
        bucket.used &= !(1 << way);
        bucket.proven &= !(1 << way);
        self.entries += u64::from(former == NONE);
        self.taken = self.taken.wrapping_add(1);
        ((at * WAYS + way) as u32, (former != NONE).then_some(former))
    }

    /// Gives an entry that will soon be needed its second chance in advance.
    pub(crate) fn expect(&mut self, slot: u32) {
        self.buckets[slot as usize / WAYS].used |= 1 << (slot as usize % WAYS);
    }

    /// Records that the content of an entry was read and matched.
    pub(crate) fn prove(&mut self, slot: u32) {
        self.buckets[slot as usize / WAYS].proven |= 1 << (slot as usize % WAYS);
    }

    /// True if the content was proven since the start.
    pub(crate) fn is_proven(&self, slot: u32) -> bool {
        self.buckets[slot as usize / WAYS].proven >> (slot as usize % WAYS) & 1 == 1
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, slot: u32) {
        let bucket = &mut self.buckets[slot as usize / WAYS];
        debug_assert_ne!(bucket.ids[slot as usize % WAYS], NONE);
        bucket.ids[slot as usize % WAYS] = NONE;
        self.entries -= 1;
    }
}

#[cfg(test)]
mod tests;

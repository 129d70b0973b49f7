//! Trace of a run: a hash of every command, always; a readable story, on demand.

use windrow_random::mix;

/// The trace of a run.
#[derive(Default)]
pub struct Trace {
    hash: u64,
    story: Option<Vec<String>>,
}

impl Trace {
    /// A trace; with `story` it also records the events in words.
    pub fn new(story: bool) -> Self {
        Self {
            hash: 0,
            story: story.then(Vec::new),
        }
    }

    /// Adds a number to the hash.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.hash = mix(self.hash ^ value);
    }

    /// Adds bytes to the hash.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        let mut lanes = [1u64, 2, 3, 4];
        for chunk in bytes.chunks_exact(32) {
            for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
                let word = u64::from_le_bytes(std::array::from_fn(|i| word[i]));
                *lane = (*lane ^ word)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(29);
            }
        }
        lanes.into_iter().for_each(|lane| self.add(lane));
    }

    /// Current hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    /// Takes the story.
    pub fn take_story(&mut self) -> Vec<String> {
        self.story.take().unwrap_or_default()
    }
}

//! Placements from the literature. Each implements the idea of its paper, with the constants of its
//! authors' simulators where the paper leaves them open, so that figures are comparable.

use super::{Place, Placement, Survey};

/// One stream for all.
#[derive(Debug, Default)]
pub struct Mixed;

impl Placement for Mixed {
    fn streams(&self) -> usize {
        1
    }
    #[inline]
    fn user(&mut self, _block: u32, _now: u32) -> u8 {
        0
    }
    #[inline]
    fn moved(&mut self, _block: u32, _now: u32, _from: Place) -> u8 {
        0
    }
    fn watches_deaths(&self) -> bool {
        false
    }
}

/// User writes and moved blocks.
#[derive(Debug, Default)]
pub struct Separate;

impl Placement for Separate {
    fn streams(&self) -> usize {
        2
    }
    #[inline]
    fn user(&mut self, _block: u32, _now: u32) -> u8 {
        0
    }
    #[inline]
    fn moved(&mut self, _block: u32, _now: u32, _from: Place) -> u8 {
        1
    }
    fn watches_deaths(&self) -> bool {
        false
    }
}

const UNKNOWN: u8 = u8::MAX;

/// Dynamic data clustering (Chiang, Lee, Chang, 1999): a block climbs one stream with each
/// overwrite and falls one with each move.
#[derive(Debug)]
pub struct Clusters {
    level: Vec<u8>,
    streams: u8,
}

impl Clusters {
    /// A placement for blocks `0 .. blocks` and `streams` streams.
    pub fn new(blocks: u32, streams: u8) -> Self {
        Self {
            level: vec![UNKNOWN; blocks as usize],
            streams,
        }
    }
}

impl Placement for Clusters {
    fn streams(&self) -> usize {
        usize::from(self.streams)
    }
    fn user(&mut self, block: u32, _now: u32) -> u8 {
        let level = &mut self.level[block as usize];
        *level = if *level == UNKNOWN {
            0
        } else {
            (*level + 1).min(self.streams - 1)
        };
        *level
    }
    fn moved(&mut self, block: u32, _now: u32, _from: Place) -> u8 {
        let level = &mut self.level[block as usize];
        // (A block that the engine did not see written starts as cold.)
        *level = if *level == UNKNOWN {
            0
        } else {
            level.saturating_sub(1)
        };
        *level
    }
    fn watches_deaths(&self) -> bool {
        false
    }
}

/// Fading average (FADaC, Kremer and Brinkmann, SYSTOR 2019): writes less moves of a block; each
/// decade above the average is a stream.
#[derive(Debug)]
pub struct Fading {
    count: Vec<u16>,
    average: f64,
    live: f64,
    streams: u8,
}

impl Fading {
    /// A placement for blocks `0 .. blocks` and `streams` streams.
    pub fn new(blocks: u32, streams: u8) -> Self {
        Self {
            count: vec![0; blocks as usize],
            average: 0.0,
            live: 0.0,
            streams,
        }
    }

    fn class(&self, block: u32) -> u8 {
        let count = f64::from(self.count[block as usize]);
        let (mut bound, mut class) = (self.average, 0);
        if bound > 0.0 {
            while count > bound && class < self.streams - 1 {
                bound *= 10.0;
                class += 1;
            }
        }
        class
    }
}

impl Placement for Fading {
    fn streams(&self) -> usize {
        usize::from(self.streams)
    }
    fn user(&mut self, block: u32, _now: u32) -> u8 {
        let count = &mut self.count[block as usize];
        *count = count.saturating_add(1);
        self.live += 1.0;
        let class = self.class(block);
        self.average += (1.0 - self.average) / self.live.max(1.0);
        class
    }
    fn moved(&mut self, block: u32, _now: u32, _from: Place) -> u8 {
        let count = &mut self.count[block as usize];
        *count = count.saturating_sub(1);
        self.class(block)
    }
    fn died(&mut self, block: u32, _now: u32, _place: Place, trimmed: bool) {
        self.live = (self.live - 1.0).max(0.0);
        if trimmed {
            self.count[block as usize] = 0;
        }
    }
}

/// Separates hot from cold segments (SFS, Min and others, FAST 2012). A block's hotness is its
/// writes over the time since the last of them. Streams are centres of the hotness of all segments,
/// by three rounds of k-means at each cleaning.
#[derive(Debug)]
pub struct Hotness {
    last: Vec<u32>,
    /// Number of writes; 0: unknown.
    writes: Vec<u32>,
    /// Sums over live blocks of each segment: writes, times of last writes.
    sums: Vec<(u64, u64)>,
    centres: Vec<f64>,
    cleaned: u32,
}

impl Hotness {
    /// A placement for blocks `0 .. blocks`, segments `0 .. segments` and `streams` streams.
    pub fn new(blocks: u32, segments: u32, streams: u8) -> Self {
        Self {
            last: vec![0; blocks as usize],
            writes: vec![0; blocks as usize],
            sums: vec![(0, 0); segments as usize],
            centres: vec![0.0; usize::from(streams)],
            cleaned: 0,
        }
    }

    fn nearest(&self, hotness: f64) -> u8 {
        let mut best = (f64::INFINITY, 0);
        for (stream, centre) in self.centres.iter().enumerate().rev() {
            let distance = (centre - hotness).abs();
            if distance < best.0 {
                best = (distance, stream);
            }
        }
        best.1 as u8
    }

    fn hotness(&self, block: u32, now: u32) -> f64 {
        f64::from(self.writes[block as usize])
            / f64::from(now.wrapping_sub(self.last[block as usize]).max(1))
    }
}

impl Placement for Hotness {
    const SURVEYS_VICTIMS: bool = true;

    fn streams(&self) -> usize {
        self.centres.len()
    }
    fn user(&mut self, block: u32, now: u32) -> u8 {
        let at = block as usize;
        let hotness = if self.writes[at] > 0 {
            self.hotness(block, now)
        } else {
            f64::MAX
        };
        self.writes[at] = self.writes[at].saturating_add(1);
        self.last[at] = now;
        self.nearest(hotness)
    }
    fn moved(&mut self, block: u32, now: u32, _from: Place) -> u8 {
        self.nearest(self.hotness(block, now))
    }
    fn placed(&mut self, block: u32, segment: u32, _now: u32) {
        // (The number of an engine's segments may grow.)
        let Some(sum) = self.sums.get_mut(segment as usize) else {
            return;
        };
        sum.0 += u64::from(self.writes[block as usize]);
        sum.1 += u64::from(self.last[block as usize]);
    }
    fn died(&mut self, block: u32, _now: u32, place: Place, trimmed: bool) {
        if self.writes[block as usize] == 0 {
            return;
        }
        // (An engine does not know the segment of a version in flight.)
        let Some(sum) = self.sums.get_mut(place.segment as usize) else {
            return;
        };
        sum.0 = sum.0.saturating_sub(u64::from(self.writes[block as usize]));
        sum.1 = sum.1.saturating_sub(u64::from(self.last[block as usize]));
        if trimmed {
            self.writes[block as usize] = 0;
        }
    }
    fn victim(&mut self, place: Place, _live: u32, _opened_at: u32, _now: u32) {
        self.cleaned += 1;
        if let Some(sum) = self.sums.get_mut(place.segment as usize) {
            *sum = (0, 0);
        }
    }
    fn survey(&mut self, now: u32, log: &dyn Survey) {
        if self.cleaned == 0 {
            return;
        }
        self.cleaned = 0;
        let mut heats = Vec::new();
        log.sealed(&mut |place, live| {
            let (writes, lasts) = self
                .sums
                .get(place.segment as usize)
                .copied()
                .unwrap_or_default();
            let time = f64::from(live) * f64::from(now) - lasts as f64;
            if live > 0 {
                heats.push(writes as f64 / time.max(1.0));
            }
        });
        for _ in 0..3 {
            let mut groups = vec![(0.0, 0u32); self.centres.len()];
            for heat in &heats {
                let group = &mut groups[usize::from(self.nearest(*heat))];
                *group = (group.0 + heat, group.1 + 1);
            }
            for (centre, (sum, number)) in self.centres.iter_mut().zip(groups) {
                *centre = if number == 0 {
                    0.0
                } else {
                    sum / f64::from(number)
                };
            }
        }
        self.centres.sort_by(|a, b| b.total_cmp(a));
    }
}

/// Block invalidation time (SepBIT, Wang and others, FAST 2022): a user write that ends a short
/// lifetime goes to stream 0, others to 1. Moved blocks: 2 if they come from stream 0, else 3, 4, 5
/// by age. Short means below the mean lifetime of the last 16 victims of stream 0.
#[derive(Debug)]
pub struct Invalidation {
    last: Vec<u32>,
    known: Vec<bool>,
    threshold: f64,
    sum: f64,
    victims: u32,
    streams: u8,
}

impl Invalidation {
    /// A placement for blocks `0 .. blocks`; six streams.
    pub fn new(blocks: u32) -> Self {
        Self {
            last: vec![0; blocks as usize],
            known: vec![false; blocks as usize],
            threshold: f64::INFINITY,
            sum: 0.0,
            victims: 0,
            streams: 6,
        }
    }
}

impl Placement for Invalidation {
    fn streams(&self) -> usize {
        usize::from(self.streams)
    }
    fn user(&mut self, block: u32, now: u32) -> u8 {
        let at = block as usize;
        let life = f64::from(now.wrapping_sub(self.last[at]));
        let short = self.known[at] && life < self.threshold;
        self.last[at] = now;
        self.known[at] = true;
        u8::from(!short)
    }
    fn moved(&mut self, block: u32, now: u32, from: Place) -> u8 {
        if from.tag == 0 {
            return 2;
        }
        let age = f64::from(now.wrapping_sub(self.last[block as usize]));
        let (mut stream, mut bound) = (3, self.threshold * 4.0);
        while age >= bound && stream < self.streams - 1 {
            bound *= 4.0;
            stream += 1;
        }
        stream
    }
    fn victim(&mut self, place: Place, _live: u32, opened_at: u32, now: u32) {
        if place.tag == 0 {
            self.sum += f64::from(now.wrapping_sub(opened_at));
            self.victims += 1;
            if self.victims == 16 {
                self.threshold = self.sum / 16.0;
                (self.sum, self.victims) = (0.0, 0);
            }
        }
    }
    fn watches_deaths(&self) -> bool {
        false
    }
}

/// Generations: user writes, then one stream further with each move, as in the chain of groups of
/// MiDAS (Oh and others, FAST 2024). MiDAS also sizes its groups by a model and separates the
/// hottest blocks; this does neither.
#[derive(Debug)]
pub struct Generations {
    streams: u8,
}

impl Generations {
    /// A placement with `streams` generations.
    pub fn new(streams: u8) -> Self {
        Self { streams }
    }
}

impl Placement for Generations {
    fn streams(&self) -> usize {
        usize::from(self.streams)
    }
    #[inline]
    fn user(&mut self, _block: u32, _now: u32) -> u8 {
        0
    }
    #[inline]
    fn moved(&mut self, _block: u32, _now: u32, from: Place) -> u8 {
        from.tag.saturating_add(1).min(self.streams - 1)
    }
    fn watches_deaths(&self) -> bool {
        false
    }
}
